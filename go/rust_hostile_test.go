// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build linux

package partywall

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"partywall.test/go/internal/layout"
)

// behindTheEnd are the names of images with records after CLOSE_WRITE. A channel never reads such
// records (SPEC 7.1).
var behindTheEnd = []string{
	"ring-close-data.bin", "ring-close-twice.bin", "socket-close-data.bin",
}

// Many hostile peers in Rust connect one after the other. Each breaks a rule, and its own channel
// ends with the code of this rule. The listener serves the next peer.
func TestListenerSurvivesRustHostilePeers(t *testing.T) {
	program := os.Getenv(rustPeerVariable)
	if program == "" {
		t.Skipf("%s does not name the program peer of the Rust crate testkit", rustPeerVariable)
	}
	for name, trust := range map[string]TrustPolicy{"shared": TrustAuto, "untrusted": TrustNobody} {
		t.Run(name, func(t *testing.T) {
			// SPEC 10 prescribes these limits for the reader of hostile images.
			listener, err := ListenChannel("unix:"+filepath.Join(t.TempDir(), "s"), &Config{
				Transport: TransportSharedMemory, Trust: trust,
				MessageMax: 64 << 10, MapMax: 256 << 10, SegmentsMax: 2,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 2*testTime)
			defer cancel()
			foe := exec.CommandContext(
				ctx, program, "dial", "hostile", listener.Addr().String(), "shared")
			foe.Stderr = os.Stderr
			output, err := foe.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := foe.Start(); err != nil {
				t.Fatal(err)
			}
			peers := 0
			for lines := bufio.NewScanner(output); lines.Scan(); peers++ {
				name, code, _ := strings.Cut(lines.Text(), " ")
				mustEndAsImage(t, listener, name, code)
			}
			if err := foe.Wait(); err != nil || peers < 30 {
				t.Errorf("the hostile process ends with %v after %d peers", err, peers)
			}
			appendFigure(t, fmt.Sprintf("%d hostile peers in Rust of a Go listener, %s\n", peers, name))
		})
	}
}

// mustEndAsImage receives from the next channel until it ends. The test fails unless the peer sends
// the image of this name, and breaks the rule with this code.
func mustEndAsImage(t *testing.T, listener *ChannelListener, name, code string) {
	t.Helper()
	channel, err := listener.Accept(testContext(t))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer channel.Close()
	if err := channel.SetReadDeadline(time.Now().Add(testTime)); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		var message *Message
		if message, err = channel.RecvMessage(); err == nil {
			message.Release()
		}
	}
	if slices.Contains(behindTheEnd, name) {
		if err != io.EOF {
			t.Errorf("%s ends with %v", name, err)
		}
		return
	}
	var failure *Error
	if errors.As(err, &failure) {
		if found, isOne := failure.ViolationCode(); isOne && fmt.Sprint(found) == code {
			return
		}
	}
	t.Errorf("%s ends with %v, want violation %s", name, err, code)
}

// Each hostile peer in Rust breaks a rule of the handshake, of a socket or of a control socket. The
// listener reports the right rule, keeps no memory or descriptor of the peer, and afterwards serves
// an honest peer.
func TestSocketListenerSurvivesRustHostilePeers(t *testing.T) {
	program := os.Getenv(rustPeerVariable)
	if program == "" {
		t.Skipf("%s does not name the program peer of the Rust crate testkit", rustPeerVariable)
	}
	for name, trust := range map[string]TrustPolicy{"trusted": TrustAuto, "untrusted": TrustNobody} {
		t.Run(name, func(t *testing.T) {
			refused := make(chan error, 100)
			// SPEC 10 prescribes these limits for the reader of hostile images.
			listener, err := ListenChannel("unix:"+filepath.Join(t.TempDir(), "s"), &Config{
				Trust: trust, MessageMax: 64 << 10, MapMax: 256 << 10, SegmentsMax: 2,
				HandshakeTimeout: testTime, OnRefused: func(err error) { refused <- err },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			mustServeHonestPeer(t, listener)
			before := resources(t)
			peers := attackSockets(t, program, listener, refused)
			if peers < 30 {
				t.Errorf("%d hostile peers, want 30 or more", peers)
			}
			mustServeHonestPeer(t, listener)
			mustFallTo(t, before)
			appendFigure(t, fmt.Sprintf(
				"%d hostile peers in Rust of a Go listener's sockets, %s\n", peers, name))
		})
	}
}

// attackSockets lets all hostile peers connect to the listener, one after the other, and returns
// how many there were.
func attackSockets(
	t *testing.T, program string, listener *ChannelListener, refused <-chan error,
) (peers int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*testTime)
	defer cancel()
	foe := exec.CommandContext(ctx, program, "dial", "hostile-sockets", listener.Addr().String(),
		"shared")
	foe.Stderr = os.Stderr
	output, err := foe.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	input, err := foe.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := foe.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(output); lines.Scan(); peers++ {
		code, name, _ := strings.Cut(lines.Text(), " ")
		number, err := strconv.Atoi(code)
		if err != nil {
			t.Fatalf("the hostile process says %q", lines.Text())
		}
		if number < int(layout.ErrorHandshakeTimedOut) {
			mustEndAsImage(t, listener, name, code)
		} else {
			mustBeRefused(t, refused, name, number)
		}
		if _, err := input.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
	}
	if err := foe.Wait(); err != nil {
		t.Errorf("the hostile process ends with %v", err)
	}
	if len(refused) > 0 {
		t.Errorf("a further refusal: %v", <-refused)
	}
	return peers
}

// mustBeRefused waits until the listener has refused a hostile peer, and fails the test unless its
// reason has this number.
func mustBeRefused(t *testing.T, refused <-chan error, name string, number int) {
	t.Helper()
	select {
	case err := <-refused:
		var failure *Error
		if !errors.As(err, &failure) || int(failure.ErrorCode()) != number {
			t.Errorf("%s is refused with %v, want error %d", name, err, number)
		}
	case <-time.After(testTime):
		t.Fatalf("%s is not refused", name)
	}
}

// mustServeHonestPeer lets an honest peer send a message over a new channel, which must arrive.
func mustServeHonestPeer(t *testing.T, listener *ChannelListener) {
	t.Helper()
	dialed, err := DialChannel(testContext(t), listener.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dialed.Close()
	accepted, err := listener.Accept(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if err := dialed.Send([]byte("honest")); err != nil {
		t.Fatal(err)
	}
	if message, err := accepted.RecvMessage(); err != nil || string(message.Bytes()) != "honest" {
		t.Fatal(err)
	}
}

// mustFallTo waits until this process has no more descriptors, mappings and goroutines than before.
func mustFallTo(t *testing.T, before used) {
	t.Helper()
	after := resources(t)
	for end := time.Now().Add(testTime); after.exceeds(before) && time.Now().Before(end); {
		runtime.Gosched()
		after = resources(t)
	}
	if after.exceeds(before) {
		t.Errorf("there are %+v, before %+v", after, before)
	}
}

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
	"slices"
	"strings"
	"testing"
	"time"
)

// behindTheEnd are images with records after CLOSE_WRITE, which a channel never reads (SPEC 7.1).
var behindTheEnd = []string{"ring-close-data.bin", "ring-close-twice.bin"}

// Each hostile peer in Rust ends its own channel, with the code of the rule that it broke. The
// listener serves the next one.
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
				mustEndAsImage(t, listener, lines.Text())
			}
			if err := foe.Wait(); err != nil || peers < 30 {
				t.Errorf("the hostile process ends with %v after %d peers", err, peers)
			}
			appendFigure(t, fmt.Sprintf("%d hostile peers in Rust of a Go listener, %s\n", peers, name))
		})
	}
}

// mustEndAsImage receives from the next channel until it ends, as the line says: the name of an
// image, and the code of the rule that it breaks.
func mustEndAsImage(t *testing.T, listener *ChannelListener, line string) {
	t.Helper()
	name, code, _ := strings.Cut(line, " ")
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

// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"partywall.test/go/internal/layout"
)

const (
	// rustPeerVariable is the environment variable with the path of the program to which
	// crates/testkit/examples/peer.rs is compiled. Without the variable the tests of this file are
	// skipped.
	rustPeerVariable = "PARTYWALL_RUST_PEER"
	// figuresVariable is the environment variable that names a file, to which tests append the rows
	// of a table.
	figuresVariable = "PARTYWALL_TEST_FIGURES"
)

// behindTheEnd are the names of images with records after CLOSE_WRITE. A channel never reads such
// records (SPEC 7.1).
var behindTheEnd = []string{"ring-close-data.bin", "ring-close-twice.bin"}

// A rustVictim is a Rust process that receives from hostile peers, one after the other.
type rustVictim struct {
	*exec.Cmd
	address Address
	lines   *bufio.Scanner
}

// startVictim starts a Rust process that accepts the given number of hostile peers, one by one.
func startVictim(t *testing.T, transport string, peers int) *rustVictim {
	t.Helper()
	path := filepath.Join(t.TempDir(), "victim")
	command := exec.Command(
		os.Getenv(rustPeerVariable), "listen", "victim", "unix:"+path, transport, fmt.Sprint(peers))
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(4*testTime, func() { _ = command.Process.Kill() })
	t.Cleanup(func() {
		timer.Stop()
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	v := &rustVictim{command, Address{"unix", path}, bufio.NewScanner(output)}
	v.mustSay(t, "a listener", "ready unix:"+path)
	return v
}

func (v *rustVictim) mustSay(t *testing.T, name, want string) {
	t.Helper()
	if !v.lines.Scan() || v.lines.Text() != want {
		t.Errorf("%s: the Rust process says %q, want %q", name, v.lines.Text(), want)
	}
}

// mustEnd checks that the Rust process has survived all hostile peers, and ends well.
func (v *rustVictim) mustEnd(t *testing.T) {
	t.Helper()
	if v.lines.Scan() {
		t.Errorf("the Rust process says %q", v.lines.Text())
	}
	if err := v.Wait(); err != nil {
		t.Errorf("the Rust process ends with %v", err)
	}
}

// hostileImages returns those images of a kind that break a rule.
func hostileImages(t *testing.T, kind string) []image {
	t.Helper()
	all := slices.DeleteFunc(images(t, kind), func(i image) bool { return i.code == 0 })
	if len(all) < 10 {
		t.Fatalf("%d hostile images of %s, want 10 or more", len(all), kind)
	}
	return all
}

// endOf returns the line that the Rust process must print when it has read the image.
func endOf(i image) string {
	if slices.Contains(behindTheEnd, i.name) {
		return "end"
	}
	return fmt.Sprint("violation ", i.code)
}

// Many hostile peers in Go connect to a Rust listener, one after the other. Each breaks a rule, and
// its own connection ends with the code of this rule. The Rust process then serves the next peer.
func TestRustListenerSurvivesHostilePeers(t *testing.T) {
	if os.Getenv(rustPeerVariable) == "" {
		t.Skipf("%s does not name the program peer of the Rust crate testkit", rustPeerVariable)
	}
	all := hostileImages(t, "ring")
	for _, transport := range []string{"shared", "untrusted"} {
		t.Run(transport, func(t *testing.T) {
			victim := startVictim(t, transport, len(all))
			for _, i := range all {
				t.Run(i.name, func(t *testing.T) { victim.attack(t, i) })
			}
			victim.mustEnd(t)
			appendFigure(t, fmt.Sprintf("%d hostile peers in Go of a Rust listener, %s\n", len(all), transport))
		})
	}
	t.Run("unix", func(t *testing.T) {
		all := hostileImages(t, "socket")
		victim := startVictim(t, "unix", len(all))
		for _, i := range all {
			victim.attackOverSocket(t, i)
		}
		victim.mustEnd(t)
		appendFigure(t, fmt.Sprintf("%d hostile peers in Go of a Rust listener, unix\n", len(all)))
	})
}

// attack writes an image into the record ring of a connection with the Rust process.
func (v *rustVictim) attack(t *testing.T, i image) {
	t.Helper()
	peer := connectHostile(t, v.address)
	peer.sendSegments(t, i)
	answers := peer.connection.Receiver
	if err := answers.SetDeadline(time.Now().Add(testTime)); err != nil {
		t.Fatal(err)
	}
	for position := uint64(0); position < i.from; position += layout.SlotBytes {
		peer.fill(position)
		peer.memory.notifyRecords()
		if err := readAll(answers, 1); err != nil {
			t.Fatalf("%s: before the image: %v", i.name, err)
		}
	}
	// The Rust process polls the first word of the next record, so the test writes this word last.
	ring, at := peer.memory.own.ring, i.from%hostileRingBytes
	bytes := slices.Clone(i.bytes)
	word := binary.LittleEndian.Uint64(bytes[at:])
	clear(bytes[at:][:8])
	ring.Write(0, bytes)
	ring.Publish(at, word)
	peer.memory.notifyRecords()
	v.mustSay(t, i.name, endOf(i))
}

// attackOverSocket sends an image on the socket of a connection with the Rust process.
func (v *rustVictim) attackOverSocket(t *testing.T, i image) {
	t.Helper()
	s := readerSettings(TrustAuto)
	s.Transports, s.Role = TransportSocket, layout.RoleConnector
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	defer cancel()
	c, err := Dial(ctx, v.address, &s, testTime)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		c.Interrupt()
		c.Close()
	}()
	conn := c.carrier.(*socketCarrier).conn
	// The Rust process ends the connection at the first broken rule, perhaps before it has read the
	// rest.
	if _, err := conn.Write(i.bytes); err != nil && !errors.Is(err, syscall.EPIPE) {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil && !errors.Is(err, syscall.ENOTCONN) {
		t.Fatal(err)
	}
	v.mustSay(t, i.name, endOf(i))
}

// appendFigure appends a line to the file that [figuresVariable] names. Without the variable it
// does nothing.
func appendFigure(t *testing.T, line string) {
	t.Helper()
	path := os.Getenv(figuresVariable)
	if path == "" {
		return
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.WriteString(file, line); err != nil {
		t.Fatal(err)
	}
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"partywall.test/go/internal/handshake"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/wire"
)

// TestImagesOverSocket sends the records of each image of sessions that is for sockets to a real
// listener, whose application has opened stream 2 and sent a message of cost 128 (SPEC 10).
func TestImagesOverSocket(t *testing.T) {
	const directory = "../../../spec/sessions"
	text, err := os.ReadFile(filepath.Join(directory, "INDEX.md"))
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.SplitN(line, " | ", 5)
		if len(cells) != 5 || cells[1] != "session-socket" {
			continue
		}
		count++
		file := strings.Trim(cells[0], "| `")
		t.Run(file, func(t *testing.T) {
			image, err := os.ReadFile(filepath.Join(directory, file))
			if err != nil {
				t.Fatal(err)
			}
			checkEnd(t, file, endOfImage(t, image), strings.Trim(cells[3], "`"))
		})
	}
	if count < 84 {
		t.Errorf("%d images, want 84", count)
	}
}

// checkEnd compares the end of the session with the row of the image.
func checkEnd(t *testing.T, file string, err error, expected string) {
	t.Helper()
	var violation layout.Violation
	isViolation := errors.As(err, &violation)
	if file == "data-after-end.socket.bin" {
		// The reader closes at CLOSE_WRITE, and does not read what follows (SPEC 11.6).
		expected = ""
	}
	number, isNumber := strconv.ParseUint(expected, 10, 8)
	switch {
	case isNumber == nil && (!isViolation || violation != layout.Violation(number)):
		t.Errorf("the session ends with %v, want violation %d", err, number)
	case isNumber != nil && isViolation:
		t.Errorf("the session ends with %v, but the records are in order: %s", err, expected)
	}
}

// endOfImage returns why a session is over whose peer sends the image and hangs up.
func endOfImage(t *testing.T, image []byte) error {
	t.Helper()
	settings := transports[2].settings(layout.RoleAcceptor)
	settings.StreamWindow, settings.StreamsMax, settings.MessageMax = 1000, 4, 1<<20
	address := wire.Address{Network: "unix", Name: filepath.Join(t.TempDir(), "socket")}
	listener, err := wire.Listen(address, settings, wire.ListenOptions{
		HandshakeTimeout: testDeadline, HandshakesMax: 1, SocketMode: 0o600,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("unix", address.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	agree(t, conn)
	ctx := within(t)
	connection, err := listener.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c, state := NewState(connection, Config{
		Role:       layout.RoleAcceptor,
		Limits:     layout.Limits{MapMax: 262144, MessageMax: 1 << 20, SegmentsMax: 2},
		Window:     1000,
		StreamsMax: 4,
	})
	stream, err := state.Open(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := Start(c, state, 0)
	defer s.Close(0, "")
	if err := newStream(s, stream).Send(ctx, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			if _, err := s.Accept(ctx); err != nil {
				return
			}
		}
	}()
	// A session that has ended refuses the rest of the image.
	_, _ = conn.Write(image)
	_ = conn.(*net.UnixConn).CloseWrite()
	<-s.Done()
	return s.Err()
}

// agree makes the handshake of a connector that shares no memory.
func agree(t *testing.T, conn net.Conn) {
	t.Helper()
	machine := handshake.New(handshake.Terms{
		Role: layout.RoleConnector,
		Hello: layout.Hello{
			VersionMin: layout.ProtocolVersionMin, VersionMax: layout.ProtocolVersionMax,
			Features: layout.FeatureSocket, Service: layout.ServiceSession,
			FallbackReason: layout.ReasonPolicy, MapMax: 1 << 20, MessageMax: 1 << 20,
			PeerBlocksMax: 8, SegmentsMax: 2, Nonce: handshake.NewNonce(),
			StreamWindow: 1000, StreamsMax: 4,
		},
		Pidfd: -1,
	}, socketEnvironment{})
	if err := machine.Start(); err != nil {
		t.Fatal(err)
	}
	for {
		if flight := machine.Flight(); len(flight.Bytes) > 0 {
			if _, err := conn.Write(flight.Bytes); err != nil {
				t.Fatal(err)
			}
		}
		b := make([]byte, machine.Wanted())
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		outcome, err := machine.Receive(handshake.Arrival{Bytes: b[:n]})
		if err != nil {
			t.Fatal(err)
		}
		if outcome != nil {
			if _, err := conn.Write(machine.Flight().Bytes); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}

// A socketEnvironment admits every peer and has no shared memory.
type socketEnvironment struct{}

func (socketEnvironment) Judge(handshake.Sender, int) (bool, error) { return false, nil }
func (socketEnvironment) MakeRegion([16]byte) (handshake.Offered, layout.FallbackReason) {
	return handshake.Offered{}, layout.ReasonPolicy
}
func (socketEnvironment) MapRegion(int, layout.Expectation) (layout.FallbackReason, error) {
	return layout.ReasonPolicy, nil
}
func (socketEnvironment) TakeDoorbells(int, int) error { return nil }
func (socketEnvironment) Close(int)                    {}

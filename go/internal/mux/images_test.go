// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"encoding/binary"
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

// TestImagesOverSocket sends to a real listener all images of sessions that are meant for sockets.
// The listener's application has opened stream 2 and sent a message of cost 128 on it (SPEC 10).
func TestImagesOverSocket(t *testing.T) {
	eachImage(t, "session-socket", 84, func(t *testing.T, image []byte) error {
		listener := listenForImage(t, transports[2])
		conn, err := net.Dial("unix", listener.Address().Name)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		agree(t, conn)
		s := acceptForImage(t, listener)
		// The error is ignored: once the session has ended because of the image, it refuses the
		// rest of the image.
		_, _ = conn.Write(image)
		_ = conn.(*net.UnixConn).CloseWrite()
		<-s.Done()
		return s.Err()
	})
}

// TestImagesOverSharedMemory writes into the ring of a real connection each image of a session that
// is meant for rings. The listener's application acts as in [TestImagesOverSocket].
func TestImagesOverSharedMemory(t *testing.T) {
	for _, transport := range transports[:2] {
		t.Run(transport.name, func(t *testing.T) {
			eachImage(t, "session-ring", 75, func(t *testing.T, image []byte) error {
				listener := listenForImage(t, transport)
				settings := transport.settings(layout.RoleConnector)
				connection, err := wire.Dial(within(t), listener.Address(), &settings, testDeadline)
				if err != nil {
					t.Fatal(err)
				}
				s := acceptForImage(t, listener)
				writeRing(t, connection.Sender, image)
				connection.Interrupt()
				connection.Close()
				<-s.Done()
				return s.Err()
			})
		})
	}
}

// writeRing sends the records of the image of a ring one by one through the sender of a connection.
func writeRing(t *testing.T, sender wire.Sender, image []byte) {
	t.Helper()
	for position := uint64(0); ; {
		record := image[position%uint64(len(image)):]
		word0 := binary.LittleEndian.Uint64(record)
		if word0 == 0 {
			return
		}
		word1 := binary.LittleEndian.Uint64(record[layout.RecordLenOffset:])
		h, err := layout.ParseRing(word0, word1, position, uint64(len(image)))
		if err != nil {
			t.Fatal(err)
		}
		err = sender.TryRecord(h.Kind, h.Stream, record[layout.RecordHeaderBytes:][:h.Len])
		if err == nil {
			err = sender.Commit()
		}
		if errors.Is(err, wire.ErrDisconnected) {
			return // the session has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		position = h.Next()
	}
}

// eachImage calls the function end with each image of a kind, and compares the error that end
// returns with the outcome that the image's row of INDEX.md states.
func eachImage(t *testing.T, kind string, least int, end func(*testing.T, []byte) error) {
	t.Helper()
	const directory = "../../../spec/sessions"
	text, err := os.ReadFile(filepath.Join(directory, "INDEX.md"))
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.SplitN(line, " | ", 5)
		if len(cells) != 5 || cells[1] != kind {
			continue
		}
		count++
		file := strings.Trim(cells[0], "| `")
		t.Run(file, func(t *testing.T) {
			image, err := os.ReadFile(filepath.Join(directory, file))
			if err != nil {
				t.Fatal(err)
			}
			checkEnd(t, file, end(t, image), strings.Trim(cells[3], "`"))
		})
	}
	if count < least {
		t.Errorf("%d images, want %d", count, least)
	}
}

// checkEnd compares the error with which the session has ended with the outcome that INDEX.md
// states for the image.
func checkEnd(t *testing.T, file string, err error, expected string) {
	t.Helper()
	var violation layout.Violation
	isViolation := errors.As(err, &violation)
	if strings.HasPrefix(file, "data-after-end.") {
		// The reader of the image ends the session at the record CLOSE_WRITE, and does not read the
		// records after it (SPEC 11.6).
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

// listenForImage returns a listener with the limits that SPEC 10 states for the side that reads
// images.
func listenForImage(t *testing.T, over transport) *wire.Listener {
	t.Helper()
	settings := over.settings(layout.RoleAcceptor)
	settings.StreamWindow, settings.StreamsMax, settings.MessageMax = 1000, 4, 1<<20
	address := wire.Address{Network: "unix", Name: filepath.Join(t.TempDir(), "socket")}
	listener, err := wire.Listen(address, settings, wire.ListenOptions{
		HandshakeTimeout: testDeadline, HandshakesMax: 1, SocketMode: 0o600,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// acceptForImage returns an accepted session with the limits that SPEC 10 states for the side that
// reads images. The session accepts every stream.
func acceptForImage(t *testing.T, listener *wire.Listener) *Session {
	t.Helper()
	ctx := within(t)
	connection, err := listener.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c, state := NewState(connection, Config{
		Role:       layout.RoleAcceptor,
		Limits:     layout.Limits{MapMax: 4 << 20, MessageMax: 1 << 20, SegmentsMax: 4},
		Window:     1000,
		StreamsMax: 4,
	})
	stream, err := state.Open(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := Start(c, state, 0)
	t.Cleanup(func() { s.Close(0, "") })
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
	return s
}

// agree performs the handshake of a connector that shares no memory.
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

// A socketEnvironment does what a handshake asks of the operating system: it admits every peer, and
// makes no shared memory.
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

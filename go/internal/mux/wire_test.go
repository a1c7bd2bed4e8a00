// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"context"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/session"
	"partywall.test/go/internal/wait"
	"partywall.test/go/internal/wire"
)

// transports are the kinds of real connections over which the tests run. Both ends are in this
// process.
var transports = []transport{
	{"shm", "unix", wire.TransportSHM, wire.TrustEveryone},
	{"untrusted", "unix", wire.TransportSHM, wire.TrustUntrusted},
	{"unix", "unix", wire.TransportSocket, wire.TrustUntrusted},
	{"tcp", "tcp", wire.TransportSocket, wire.TrustUntrusted},
}

type transport struct {
	name, network string
	transports    wire.Transports
	trust         wire.Trust
}

// settings returns the settings of one side. Memory and ring are so small that messages meet a full
// ring and full memory.
func (c transport) settings(role uint32) wire.Settings {
	return wire.Settings{
		Role: role, Service: layout.ServiceSession, Transports: c.transports, Trust: c.trust,
		Wait: wait.Park, SpinBudget: time.Microsecond,
		RingBytes: 16 << 10, PeerBlocksMax: 64, MemoryMax: 1 << 20, MessageMax: 1 << 30,
		MapMax: 4 << 20, SegmentsMax: 4, InlineMax: 1 << 10, IdleMemory: time.Second,
		StreamWindow: testWindow, StreamsMax: 8, NewChecker: NewChecker,
	}
}

func (c transport) listen(t *testing.T) *wire.Listener {
	t.Helper()
	if c.transports == wire.TransportSHM && runtime.GOOS != "linux" {
		t.Skip("no shared memory on this system")
	}
	address := wire.Address{Network: c.network, Name: "127.0.0.1:0"}
	if c.network == "unix" {
		address.Name = filepath.Join(t.TempDir(), "socket")
	}
	listener, err := wire.Listen(address, c.settings(layout.RoleAcceptor), wire.ListenOptions{
		HandshakeTimeout: testDeadline, HandshakesMax: 4, SocketMode: 0o600,
		OnRefused: func(err error) { t.Errorf("refused: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// connect returns two sessions over a new connection, which are closed when the test ends.
func (c transport) connect(t *testing.T) [2]*Session {
	t.Helper()
	listener := c.listen(t)
	defer listener.Close()
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	defer cancel()
	var connections [2]*wire.Connection
	var group sync.WaitGroup
	group.Go(func() {
		accepted, err := listener.Accept(ctx)
		if err != nil {
			t.Error(err)
		}
		connections[1] = accepted
	})
	settings := c.settings(layout.RoleConnector)
	connected, err := wire.Dial(ctx, listener.Address(), &settings, testDeadline)
	if err != nil {
		t.Fatal(err)
	}
	connections[0] = connected
	group.Wait()
	var sessions [2]*Session
	for i, connection := range connections {
		sessions[i] = startOver(connection, uint32(i))
	}
	closeAtEnd(t, sessions)
	return sessions
}

func startOver(connection *wire.Connection, role uint32) *Session {
	conn, state := NewState(connection, Config{
		Role:       role,
		Limits:     layout.Limits{MapMax: 4 << 20, MessageMax: 1 << 30, SegmentsMax: 4},
		Window:     testWindow,
		StreamsMax: 8,
	})
	return Start(conn, state, 5*time.Second)
}

// TestMemoryOfMessageFitsItsCredit releases messages of many lengths, and makes new ones. The
// memory of a message must always be less than twice its footprint, whatever memory was released
// before.
func TestMemoryOfMessageFitsItsCredit(t *testing.T) {
	for _, n := range []int{1 << 20, 65537, 65536, 65535, 4096, 129, 128, 65, 64, 1, 0, 100, 5000} {
		for range 3 {
			bytes, owner := newPooled(n)
			if len(bytes) != n || cap(bytes) > 2*max(n, 32) {
				t.Errorf("%d bytes hold %d", n, cap(bytes))
			}
			owner.Release(0)
		}
	}
}

// hangUp ends the connection of a session without sending CLOSE_WRITE.
func hangUp(s *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.End(&session.Error{Number: layout.ErrorDisconnected})
	s.interrupt()
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"context"
	"net"
	"testing"

	"golang.org/x/net/nettest"
)

// A streamConn makes a stream a [net.Conn], by adding the addresses that nettest needs.
type streamConn struct{ *Stream }

func (streamConn) LocalAddr() net.Addr  { return fakeAddr{} }
func (streamConn) RemoteAddr() net.Addr { return fakeAddr{} }

type fakeAddr struct{}

func (fakeAddr) Network() string { return "conn" }
func (fakeAddr) String() string  { return "conn" }

func TestStreamIsAConnection(t *testing.T) {
	connects := map[string]func(*testing.T) [2]*Session{
		"fake": func(t *testing.T) [2]*Session { return start(t, newFakes()) },
	}
	for _, transport := range transports {
		connects[transport.name] = transport.connect
	}
	for name, connect := range connects {
		t.Run(name, func(t *testing.T) {
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				sessions := connect(t)
				opened, accepted := mustOpen(t, sessions)
				stop := func() {
					_, _ = opened.Close(), accepted.Close()
					sessions[0].Close(0, "")
					sessions[1].Close(0, "")
				}
				return streamConn{opened}, streamConn{accepted}, stop, nil
			})
		})
	}
}

// mustOpen opens a stream from the first session to the second, and returns both of its sides.
func mustOpen(t *testing.T, sessions [2]*Session) (opened, accepted *Stream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	defer cancel()
	opened, err := sessions[0].Open(ctx, 1, []byte("metadata"))
	if err != nil {
		t.Fatal(err)
	}
	accepted, err = sessions[1].Accept(ctx)
	if err != nil || string(accepted.Metadata()) != "metadata" {
		t.Fatal(accepted, err)
	}
	return opened, accepted
}

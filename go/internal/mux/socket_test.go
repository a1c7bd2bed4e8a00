// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"net"
	"path/filepath"
	"testing"
)

// newSockets returns the two sides of a connection over sockets.
func newSockets(t *testing.T, network string) [2]Conn {
	t.Helper()
	var conns [2]Conn
	for i, socket := range dialSockets(t, network) {
		conn, err := NewSocket(socket, nil, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = conn
	}
	return conns
}

func dialSockets(t *testing.T, network string) [2]net.Conn {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "socket")
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	connected, err := net.Dial(network, listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return [2]net.Conn{connected, accepted}
}

// SPDX-License-Identifier: MIT OR Apache-2.0

// Package examples holds what the example programs in the folders below it have in common. Each
// example is a test, and so is known to run.
package examples

import (
	"io"
	"net"
	"sync"
)

// Forward accepts connections until the listener is closed, and carries the bytes of each to and
// from a connection that dial makes. So a server that cannot be changed is reached through the
// listener.
func Forward(listener net.Listener, dial func() (net.Conn, error)) error {
	for {
		from, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer from.Close()
			to, err := dial()
			if err != nil {
				return
			}
			defer to.Close()
			var group sync.WaitGroup
			group.Go(func() { carry(from, to) })
			group.Go(func() { carry(to, from) })
			group.Wait()
		}()
	}
}

// carry copies the bytes that come on one connection, from, to the other, to. After the last byte
// it ends the sending on that other; after an error it closes both.
func carry(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		_ = to.Close()
		_ = from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

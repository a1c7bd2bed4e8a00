// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"partywall.test/go/internal/sys"
)

// socketCarrier is the state that the sender and the receiver of a connection over a socket have in
// common (SPEC 8).
type socketCarrier struct {
	conn   socketConn
	raw    syscall.RawConn
	isUnix bool
	sender *socketSender
	condition

	watchers sync.WaitGroup
	process  *processWatch // nil without a verified pidfd
}

// socketConn has the methods that both a Unix socket and a TCP socket have.
type socketConn interface {
	net.Conn
	syscall.Conn
	CloseRead() error
	CloseWrite() error
}

// establishSocket makes a sender and a receiver that use the socket on which the handshake took
// place.
func establishSocket(c *Connection, h *Handshake) {
	conn, ok := h.conn.(socketConn)
	if !ok {
		panic("wire: a connection is a Unix or TCP socket")
	}
	_, isUnix := h.conn.(*net.UnixConn)
	k := &socketCarrier{conn: conn, isUnix: isUnix}
	// The error is ignored: only a closed socket causes one, and each later use of the socket
	// reports it.
	k.raw, _ = conn.SyscallConn()
	limits := h.settings.limits()
	k.sender = newSocketSender(k, c.Outcome.Peer.MessageMax)
	c.Sender = k.sender
	c.Checker = h.settings.NewChecker(limits, nil)
	c.Receiver = newSocketReceiver(k, c.Checker)
	c.carrier = k
	if process := h.env.process; process != nil {
		k.process = newProcessWatch(process)
		k.watchers.Go(func() {
			if k.process.wait() {
				// The error of CloseRead is ignored. Bytes that the peer sent before its death can
				// still be read afterwards.
				_ = k.conn.CloseRead()
				_ = k.conn.CloseWrite()
			}
		})
	}
}

// fail ends the connection because of err, a violation or a system error, and closes the socket. It
// returns the first error that has ended the connection.
func (k *socketCarrier) fail(err error) error {
	first, isFirst := k.breakBy(err)
	if isFirst {
		_ = k.conn.Close()
	}
	return first
}

// interrupt makes calls on the connection return ErrClosed instead of waiting: those that wait now,
// and all later ones.
func (k *socketCarrier) interrupt() {
	k.isClosed.Store(true)
	_ = k.conn.SetReadDeadline(time.Unix(1, 0))
	k.sender.interrupt()
}

// close waits until all bytes are written, for lingerTime at most, and then closes the socket.
func (k *socketCarrier) close() {
	if k.process != nil {
		k.process.close()
	}
	k.watchers.Wait()
	if !k.sender.drain(lingerTime) || k.isUnix {
		_ = k.conn.Close()
		return
	}
	// A TCP socket that is closed with unread bytes resets the connection (SPEC 8.4). So a
	// goroutine first reads and drops the bytes of the peer.
	_ = k.conn.CloseWrite()
	go func() {
		_ = k.conn.SetReadDeadline(time.Now().Add(dropTime))
		_, _ = io.Copy(io.Discard, k.conn)
		_ = k.conn.Close()
	}()
}

// read reads the bytes that have come on the socket, without waiting.
func (k *socketCarrier) read(into []byte) (n int, err error) {
	failure := k.raw.Control(func(fd uintptr) { n, err = sys.ReadNow(int(fd), into) })
	if failure != nil {
		return 0, sys.ErrHungUp
	}
	return n, err
}

const (
	// lingerTime is the longest time for which closing a connection waits until all sent bytes are
	// written.
	lingerTime = 5 * time.Second
	// dropTime is the longest time for which a closed TCP connection reads and drops bytes of the
	// peer.
	dropTime = time.Second
)

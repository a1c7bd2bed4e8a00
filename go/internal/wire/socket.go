// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"partywall.test/go/internal/sys"
)

// socketCarrier is what sender and receiver of a connection over a socket have in common (SPEC 8).
type socketCarrier struct {
	conn     socketConn
	raw      syscall.RawConn
	isUnix   bool
	sender   *socketSender
	isGone   atomic.Bool // the peer has died or hung up
	isClosed atomic.Bool // this side has closed the connection
	broken   atomic.Pointer[error]

	watchers sync.WaitGroup
	process  *processWatch // nil without a verified pidfd
}

// socketConn is what Unix and TCP sockets have.
type socketConn interface {
	net.Conn
	syscall.Conn
	CloseRead() error
	CloseWrite() error
}

// establishSocket makes sender and receiver over the socket of the handshake.
func establishSocket(c *Connection, h *Handshake) {
	conn, ok := h.conn.(socketConn)
	if !ok {
		panic("wire: a connection is a Unix or TCP socket")
	}
	_, isUnix := h.conn.(*net.UnixConn)
	k := &socketCarrier{conn: conn, isUnix: isUnix}
	// The error is that of a socket that is closed, which each use reports.
	k.raw, _ = conn.SyscallConn()
	limits := h.settings.limits()
	k.sender = newSocketSender(k, c.Outcome.Peer.MessageMax)
	c.Sender = k.sender
	c.Receiver = newSocketReceiver(k, h.settings.NewChecker(limits, nil))
	c.carrier = k
	if process := h.env.process; process != nil {
		k.process = newProcessWatch(process)
		k.watchers.Go(func() {
			if k.process.wait() {
				// Bytes that the peer had sent are read before the end of the stream.
				_ = k.conn.CloseRead()
				_ = k.conn.CloseWrite()
			}
		})
	}
}

// fail ends the connection because of a violation or a system error, and hangs up. It returns the
// first error that ended it.
func (k *socketCarrier) fail(err error) error {
	if k.broken.CompareAndSwap(nil, &err) {
		_ = k.conn.Close()
	}
	return *k.broken.Load()
}

// check returns why the connection cannot be used any more, or nil.
func (k *socketCarrier) check() error {
	if k.isClosed.Load() {
		return ErrClosed
	}
	if broken := k.broken.Load(); broken != nil {
		return *broken
	}
	return nil
}

// interrupt makes all calls that wait return ErrClosed, and all later ones.
func (k *socketCarrier) interrupt() {
	k.isClosed.Store(true)
	_ = k.conn.SetReadDeadline(time.Unix(1, 0))
	k.sender.interrupt()
}

// close writes what is pending, for a bounded time, and closes the socket.
func (k *socketCarrier) close() {
	if k.process != nil {
		k.process.close()
	}
	k.watchers.Wait()
	if !k.sender.drain(lingerTime) || k.isUnix {
		_ = k.conn.Close()
		return
	}
	// A TCP socket that is closed while bytes lie unread in it resets the connection (SPEC 8.4).
	_ = k.conn.CloseWrite()
	go func() {
		_ = k.conn.SetReadDeadline(time.Now().Add(dropTime))
		_, _ = io.Copy(io.Discard, k.conn)
		_ = k.conn.Close()
	}()
}

// read reads what is there, without waiting.
func (k *socketCarrier) read(into []byte) (n int, err error) {
	failure := k.raw.Control(func(fd uintptr) { n, err = sys.ReadNow(int(fd), into) })
	if failure != nil {
		return 0, sys.ErrHungUp
	}
	return n, err
}

const (
	// lingerTime bounds how long Close waits until what was sent is written.
	lingerTime = 5 * time.Second
	// dropTime bounds how long a closed TCP socket reads what nobody wants.
	dropTime = time.Second
)

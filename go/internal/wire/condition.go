// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import "sync/atomic"

// A condition says whether a connection, over shared memory or a socket, is open, and why it is
// not. Any goroutine may use it.
//
//	open ──▶ isGone     the peer has died or hung up; what it had sent can still be read
//	     ──▶ broken     a rule was broken, or a call of the system has failed
//	     ──▶ isClosed   this side has closed the connection
//
// Each of the three states is entered at most once, in any order, and never left.
type condition struct {
	isGone   atomic.Bool
	isClosed atomic.Bool
	broken   atomic.Pointer[error]
}

// breakBy marks the connection as broken by err. It returns the first error that has broken the
// connection, and whether that is err.
func (c *condition) breakBy(err error) (error, bool) {
	isFirst := c.broken.CompareAndSwap(nil, &err)
	return *c.broken.Load(), isFirst
}

// brokenBy returns the error that has broken the connection, or nil if none has.
func (c *condition) brokenBy() error {
	if broken := c.broken.Load(); broken != nil {
		return *broken
	}
	return nil
}

// check returns the error of a connection that this side has closed or that is broken, or nil.
// After the death of the peer it returns nil, because what the peer had sent can still be read.
func (c *condition) check() error {
	if c.isClosed.Load() {
		return ErrClosed
	}
	return c.brokenBy()
}

// isOver reports whether every wait on the connection must return: the peer is gone, or the
// connection is closed or broken.
func (c *condition) isOver() bool {
	return c.isGone.Load() || c.isClosed.Load() || c.broken.Load() != nil
}

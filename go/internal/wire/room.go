// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/ring"
)

// Room returns a function that waits until an attempt to send may succeed, after one has just
// returned ErrFull. Another goroutine may call the function while the sender is in use, one at a
// time, and never while WaitRoom waits.
func (p *sharedSender) Room() func() error {
	consumed, released := p.consumed, p.released
	control := p.memory.peer.control
	look := func(uintptr) bool {
		p.sleeper.Arm(false)
		return control.Load(layout.ControlConsumed) != consumed ||
			control.Load(layout.ControlReleased) != released ||
			p.waker.IsGone() || p.memory.isOver()
	}
	return func() error {
		if p.waker.CheckBeforeWait() == ring.WakeNotify {
			p.memory.notifyRecords()
		}
		return p.sleep(look)
	}
}

// Unwritten returns nil, because committed records need no further writing: the peer reads them in
// the ring.
func (*sharedSender) Unwritten() func() error { return nil }

// Room returns a function that waits until the bytes of the last Commit are written. Another
// goroutine may call the function while the sender is in use.
func (s *socketSender) Room() func() error {
	if wait := s.Unwritten(); wait != nil {
		return wait
	}
	return func() error { return nil }
}

// Unwritten returns a function that waits until the socket has taken all committed bytes, or nil if
// it already has.
func (s *socketSender) Unwritten() func() error {
	writing, over := s.writing, s.over
	if writing == nil || isDone(writing) {
		return nil
	}
	return func() error {
		select {
		case <-writing:
			return nil
		case <-over:
			return ErrClosed
		}
	}
}

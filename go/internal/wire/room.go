// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/ring"
)

// Room returns a wait until the attempt that has just returned ErrFull may succeed. Another
// goroutine may wait while the sender is in use: one at a time, and none in WaitRoom.
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
		err := p.memory.room.wait(look)
		p.sleeper.Disarm()
		return waitError(err)
	}
}

// Unwritten returns nil: the peer reads what is committed where it lies.
func (*sharedSender) Unwritten() func() error { return nil }

// Room returns a wait until the last Commit is written, for a goroutine of its own.
func (s *socketSender) Room() func() error {
	if wait := s.Unwritten(); wait != nil {
		return wait
	}
	return func() error { return nil }
}

// Unwritten returns a wait until the socket has taken what was committed, or nil if it has.
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

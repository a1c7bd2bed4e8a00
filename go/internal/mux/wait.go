// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"context"
	"os"

	"partywall.test/go/internal/fault"
)

// A broadcast wakes all goroutines that wait for one event of a session or stream. The lock of the
// session guards it. Its zero value has no waiter.
type broadcast struct{ waiters chan struct{} }

// wait returns a channel that the next call of wake closes.
func (b *broadcast) wait() <-chan struct{} {
	if b.waiters == nil {
		b.waiters = make(chan struct{})
	}
	return b.waiters
}

// wake wakes the goroutines that wait for the event.
func (b *broadcast) wake() {
	if b.waiters != nil {
		close(b.waiters)
		b.waiters = nil
	}
}

// A notice wakes the one goroutine that waits for an event, now or next. It must be made.
type notice chan struct{}

func newNotice() notice { return make(notice, 1) }

// take returns whether the event has come, and forgets it.
func (n notice) take() bool { return hasCome(n) }

// hasCome reports whether an event has come. It takes that of a notice.
func hasCome(event <-chan struct{}) bool {
	select {
	case <-event:
		return true
	default:
		return false
	}
}

// wake lets the goroutine look again. It may find nothing.
func (n notice) wake() {
	select {
	case n <- struct{}{}:
	default:
	}
}

// A limit is how long a call waits: until a context is done, or a deadline has passed.
type limit struct {
	ctx      context.Context // nil: without
	deadline *deadline       // nil: without
}

// wait waits for the event, or until the role is offered; offered is nil for a call that cannot
// drive. The error is [os.ErrDeadlineExceeded], or that of the context.
func (l limit) wait(event, offered <-chan struct{}) (isOffered bool, err error) {
	var done, passed <-chan struct{}
	if l.ctx != nil {
		done = l.ctx.Done()
	}
	if l.deadline != nil {
		passed = l.deadline.wait()
	}
	select {
	case <-event:
		return false, nil
	case <-offered:
		return true, nil
	case <-done:
		return false, l.ctx.Err()
	case <-passed:
		return false, os.ErrDeadlineExceeded
	}
}

// wakes calls wake once the context is done or the deadline has passed, until the function that it
// returns is called, which may be nil.
func (l limit) wakes(wake func()) func() bool {
	if l.deadline != nil {
		l.deadline.wait()
	}
	if l.ctx == nil || l.ctx.Done() == nil || fault.Is("silent_context") {
		return nil
	}
	return context.AfterFunc(l.ctx, wake)
}

// check returns an error if the context is done or the deadline has passed already.
func (l limit) check() error {
	if l.ctx != nil && l.ctx.Err() != nil {
		return l.ctx.Err()
	}
	if l.deadline != nil && l.deadline.hasPassed() {
		return os.ErrDeadlineExceeded
	}
	return nil
}

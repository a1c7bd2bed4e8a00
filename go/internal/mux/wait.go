// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"context"
	"os"

	"partywall.test/go/internal/fault"
)

// A broadcast wakes all goroutines that wait for one event of a session or stream. The session's
// lock guards the broadcast. In its zero value no goroutine waits.
type broadcast struct{ waiters chan struct{} }

// wait returns a channel that the next call of [broadcast.wake] closes.
func (b *broadcast) wait() <-chan struct{} {
	if b.waiters == nil {
		b.waiters = make(chan struct{})
	}
	return b.waiters
}

func (b *broadcast) wake() {
	if b.waiters != nil {
		close(b.waiters)
		b.waiters = nil
	}
}

// A notice wakes one goroutine: the one that waits for its event now, or else the next one that
// does. A notice must be made with newNotice.
type notice chan struct{}

func newNotice() notice { return make(notice, 1) }

// take returns whether the notice's event has come, and forgets the event.
func (n notice) take() bool { return hasCome(n) }

// hasCome reports whether an event has come, without waiting. If the event is that of a notice,
// hasCome also forgets it.
func hasCome(event <-chan struct{}) bool {
	select {
	case <-event:
		return true
	default:
		return false
	}
}

// wake wakes the goroutine that waits for the notice, which then checks what it waits for. It may
// find that nothing has changed.
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

// wait waits for the event, until the limit l is reached or the channel offered says that the role
// of the driver is offered to this goroutine. That channel is nil for a call that cannot drive the
// session. The error is [os.ErrDeadlineExceeded], or that of the limit's context.
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

// wakes arranges that the function wake is called once the limit's context is done or its deadline
// has passed. The result is nil, or a function that ends this arrangement.
func (l limit) wakes(wake func()) func() bool {
	if l.deadline != nil {
		l.deadline.wait()
	}
	if l.ctx == nil || l.ctx.Done() == nil || fault.Is("silent_context") {
		return nil
	}
	return context.AfterFunc(l.ctx, wake)
}

// check returns an error if the limit's context is done or its deadline has passed already.
func (l limit) check() error {
	if l.ctx != nil && l.ctx.Err() != nil {
		return l.ctx.Err()
	}
	if l.deadline != nil && l.deadline.hasPassed() {
		return os.ErrDeadlineExceeded
	}
	return nil
}

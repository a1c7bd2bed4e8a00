// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"context"
	"os"
	"sync"
	"time"
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

// wait waits for the event. The error is [os.ErrDeadlineExceeded], or that of the context.
func (l limit) wait(event <-chan struct{}) error {
	var done, passed <-chan struct{}
	if l.ctx != nil {
		done = l.ctx.Done()
	}
	if l.deadline != nil {
		passed = l.deadline.wait()
	}
	select {
	case <-event:
		return nil
	case <-done:
		return l.ctx.Err()
	case <-passed:
		return os.ErrDeadlineExceeded
	}
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

// A deadline is a time that can be changed while calls wait for it. Its zero value never passes.
type deadline struct {
	mu     sync.Mutex
	passed chan struct{} // closed once the instant has passed; nil until somebody waits
	timer  *time.Timer
	is     bool // the instant has passed
}

// set changes the time of the deadline. With the zero time it never passes.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.is {
		d.is, d.passed = false, nil
	}
	if t.IsZero() {
		return
	}
	if rest := time.Until(t); rest > 0 {
		var timer *time.Timer
		timer = time.AfterFunc(rest, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.timer == timer {
				d.pass()
			}
		})
		d.timer = timer
		return
	}
	d.pass()
}

// pass wakes the calls that wait, because the deadline has passed. The lock d.mu is held.
func (d *deadline) pass() {
	d.is = true
	if d.passed != nil {
		close(d.passed)
	}
}

// hasPassed reports whether the deadline has passed.
func (d *deadline) hasPassed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.is
}

// wait returns a channel that is closed once the deadline has passed.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.passed == nil {
		d.passed = make(chan struct{})
		if d.is {
			close(d.passed)
		}
	}
	return d.passed
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"sync"
	"time"

	"partywall.test/go/internal/fault"
)

// A deadline is a time that can be changed while calls wait for it. Its zero value never passes.
//
// Its timer starts when a call waits, and is not moved to a later time: when it fires too early, it
// starts again. So a change of the deadline between two calls costs no timer.
type deadline struct {
	wake func() // is called once the deadline has passed, for a driver that waits; may be nil

	mu     sync.Mutex
	at     time.Time     // zero is never
	is     bool          // calls were told that the time has passed
	passed chan struct{} // closed once the time has passed; nil until a call waits
	timer  *time.Timer
	fires  time.Time // when the timer fires; zero if it does not run
}

// set changes the time of the deadline. With the zero time it never passes.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = t
	if d.is {
		d.is, d.passed = false, nil
	}
	if d.passed != nil || !t.IsZero() && time.Until(t) <= 0 {
		d.check()
	}
}

// check tells calls if the time has passed, and otherwise sees to it that the timer fires by then.
// The lock d.mu is held.
func (d *deadline) check() {
	if d.at.IsZero() || d.is {
		return
	}
	rest := time.Until(d.at)
	switch {
	case rest <= 0:
		d.is = true
		if d.passed != nil {
			close(d.passed)
		}
		if d.wake != nil && !fault.Is("silent_deadline") {
			d.wake()
		}
	case d.timer == nil:
		d.timer, d.fires = time.AfterFunc(rest, d.fire), d.at
	case d.fires.IsZero() || d.at.Before(d.fires) && !fault.Is("timer_unmoved"):
		d.timer.Reset(rest)
		d.fires = d.at
	}
}

// fire is the timer's function.
func (d *deadline) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fires = time.Time{}
	d.check()
}

// hasPassed reports whether the deadline has passed.
func (d *deadline) hasPassed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.is || !d.at.IsZero() && time.Until(d.at) <= 0
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
	d.check()
	return d.passed
}

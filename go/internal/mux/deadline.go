// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"sync"
	"time"

	"partywall.test/go/internal/fault"
)

// A deadline is a time that can be changed while calls wait for it. Its zero value never passes.
//
// The timer of a deadline is started when a call waits. A later deadline does not move the timer:
// it fires too early, and is then started again. So changing the deadline for every call is cheap.
type deadline struct {
	wake func() // is called once the deadline has passed, for a driver that waits; may be nil

	mu     sync.Mutex
	at     time.Time     // zero is never
	is     bool          // calls were told that the time has passed
	passed chan struct{} // closed once the time has passed; nil until a call waits
	timer  *time.Timer
	fires  time.Time // when the timer fires; zero if it does not run
}

// set changes the time of the deadline. The zero time means that it never passes.
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

// check wakes the calls that wait for the deadline if it has passed. If not, it makes sure that the
// timer fires when the deadline passes. The caller holds d.mu.
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

// fire is the function that the timer calls: it wakes the calls that wait for the deadline if that
// has passed, and otherwise starts the timer again.
func (d *deadline) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fires = time.Time{}
	d.check()
}

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

// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"sync"
	"time"
)

// alarm is the deadline of a sender over a socket. The deadline may change while a goroutine waits
// for it.
type alarm struct {
	limit instant

	mutex   sync.Mutex
	changed chan struct{} // closed when the deadline changes; nil while nobody waits
}

// set changes the deadline. The zero time means that there is none.
func (a *alarm) set(t time.Time) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.limit.set(t)
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// wait returns true once the channel done or over is closed, or false once the deadline has passed.
func (a *alarm) wait(done, over <-chan struct{}) bool {
	for {
		a.mutex.Lock()
		if a.changed == nil {
			a.changed = make(chan struct{})
		}
		changed, limit := a.changed, a.limit.time()
		a.mutex.Unlock()
		var passed <-chan time.Time
		var timer *time.Timer
		if !limit.IsZero() {
			timer = time.NewTimer(time.Until(limit))
			passed = timer.C
		}
		hasChanged, isDone := false, true
		select {
		case <-done:
		case <-over:
		case <-passed:
			isDone = false
		case <-changed:
			hasChanged = true
		}
		if timer != nil {
			timer.Stop() // none is kept for a deadline that has changed
		}
		if !hasChanged {
			return isDone
		}
	}
}

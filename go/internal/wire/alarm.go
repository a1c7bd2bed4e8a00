// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"sync"
	"sync/atomic"
	"time"
)

// alarm is the deadline of a sender over a socket. It may change while a goroutine waits for it.
type alarm struct {
	limit atomic.Int64 // in nanoseconds since 1970; 0 is never

	mutex   sync.Mutex
	changed chan struct{} // closed when the deadline changes; nil while nobody waits
}

// set sets the deadline; the zero time means never.
func (a *alarm) set(t time.Time) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	nanoseconds := int64(0)
	if !t.IsZero() {
		nanoseconds = max(t.UnixNano(), 1)
	}
	a.limit.Store(nanoseconds)
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// wait returns true once done or over is closed, or false once the deadline has passed.
func (a *alarm) wait(done, over <-chan struct{}) bool {
	for {
		a.mutex.Lock()
		if a.changed == nil {
			a.changed = make(chan struct{})
		}
		changed, limit := a.changed, a.limit.Load()
		a.mutex.Unlock()
		var passed <-chan time.Time
		if limit != 0 {
			timer := time.NewTimer(time.Until(time.Unix(0, limit)))
			defer timer.Stop()
			passed = timer.C
		}
		select {
		case <-done:
			return true
		case <-over:
			return true
		case <-passed:
			return false
		case <-changed:
		}
	}
}

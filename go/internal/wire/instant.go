// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"sync/atomic"
	"time"
)

// An instant is a deadline that any goroutine may change. In its zero value the deadline never
// passes.
type instant struct{ nanoseconds atomic.Int64 } // since 1970; 0 is never

// set changes the deadline. The zero time means that it never passes.
func (i *instant) set(t time.Time) {
	nanoseconds := int64(0)
	if !t.IsZero() {
		nanoseconds = max(t.UnixNano(), 1)
	}
	i.nanoseconds.Store(nanoseconds)
}

func (i *instant) isNever() bool { return i.nanoseconds.Load() == 0 }

// time returns the deadline, or the zero time if there is none.
func (i *instant) time() time.Time {
	if nanoseconds := i.nanoseconds.Load(); nanoseconds != 0 {
		return time.Unix(0, nanoseconds)
	}
	return time.Time{}
}

func (i *instant) hasPassed() bool { return !i.isNever() && i.isPast() }

// isPast is hasPassed for an instant that is not never. It is a function of its own, so that the
// compiler can inline hasPassed.
func (i *instant) isPast() bool {
	nanoseconds := i.nanoseconds.Load()
	return nanoseconds != 0 && time.Now().UnixNano() >= nanoseconds
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"sync/atomic"

	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
)

// Wake is the answer of a [Waker]: whether the caller must notify the peer.
type Wake uint8

// The answers of [Waker.Check] and [Waker.CheckBeforeWait].
const (
	// WakeNone: the peer is awake, or was notified in this sleep already.
	WakeNone Wake = iota
	// WakeNotify: the caller notifies the peer's doorbell.
	WakeNotify
	// WakeQuiet: the peer sleeps, but polls by itself at intervals. The caller does nothing, unless
	// it is about to wait for the peer: see [Waker.CheckBeforeWait].
	WakeQuiet
	// WakeGone: the peer will never read records again.
	WakeGone
)

// Waker decides whether to notify one sleeper of the peer, at most once in each of its sleeps. Any
// number of goroutines may use it at once.
type Waker struct {
	peer  mem.Peer // control page of the peer
	which Which
	// lastNotified is the sleeper's word, with its flag, in whose sleep the peer was last notified.
	lastNotified atomic.Uint64
}

// NewWaker returns a waker for the peer's sleeper which, whose word is in the peer's control page.
func NewWaker(peer mem.Peer, which Which) *Waker { return &Waker{peer: peer, which: which} }

// Check says whether to notify the peer after the caller has published what the sleeper waits for.
// One call is enough for several stores, if it comes before the caller waits for the peer.
//
// A call before the stores lets the sleeper wake up early. It does not replace the call after them.
func (w *Waker) Check() Wake {
	word := w.peer.Load(uint64(w.which))
	if word&layout.AsleepQuiet != 0 && word != layout.AsleepGone && !fault.Is("loud_quiet") {
		return WakeQuiet
	}
	return w.claim(word)
}

// CheckBeforeWait is [Waker.Check] for a caller that is about to wait for the peer: a quiet sleeper
// is notified, too (SPEC 6.4).
func (w *Waker) CheckBeforeWait() Wake { return w.claim(w.peer.Load(uint64(w.which))) }

// IsGone reports whether the peer has declared that it will never read records again. It is always
// false for the sleeper for room, whose word has no such value (SPEC 6.5).
func (w *Waker) IsGone() bool {
	return w.which == Records && w.peer.Load(uint64(w.which)) == layout.AsleepGone
}

// claim returns WakeNotify to only one caller for each sleep, which the sleeper's word identifies.
func (w *Waker) claim(word uint64) Wake {
	switch {
	case word == 0:
		return WakeNone
	case word == layout.AsleepGone && w.which == Records && !fault.Is("gone_unseen"):
		return WakeGone
	case word == layout.AsleepGone:
		return WakeNone
	case w.lastNotified.Swap(word) == word && !fault.Is("notified_forgotten"):
		return WakeNone
	default:
		return WakeNotify
	}
}

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

// The answers of [Waker.Check] and [Waker.CheckBeforeWait] to the question whether to notify the
// peer.
const (
	// WakeNone: the caller does nothing, because the peer is awake, or was already notified in this
	// sleep.
	WakeNone Wake = iota
	// WakeNotify: the caller must notify the peer's doorbell.
	WakeNotify
	// WakeQuiet: the peer sleeps, but polls by itself at intervals. The caller need not notify it,
	// unless it is about to wait for the peer: see [Waker.CheckBeforeWait].
	WakeQuiet
	// WakeGone: the caller does nothing, because the peer will never read records again.
	WakeGone
)

// Waker decides whether to notify one sleeper of the peer, at most once in each of its sleeps. Any
// number of goroutines may use it at once.
type Waker struct {
	peer  mem.Peer // control page of the peer
	which Which
	// lastNotified is the value that the sleeper's word had in the sleep in which the peer was last
	// notified.
	lastNotified atomic.Uint64
}

// NewWaker returns a waker for the peer's sleeper which, whose word is in the peer's control page.
func NewWaker(peer mem.Peer, which Which) *Waker { return &Waker{peer: peer, which: which} }

// Check says whether to notify the peer after the caller has published what the sleeper waits for.
// One call is enough for several stores, if it comes before the caller waits for the peer.
//
// An additional call of Check before the stores lets the sleeper wake up early, but does not
// replace the call after the stores.
func (w *Waker) Check() Wake {
	word := w.peer.Load(uint64(w.which))
	if word&layout.AsleepQuiet != 0 && word != layout.AsleepGone && !fault.Is("loud_quiet") {
		return WakeQuiet
	}
	return w.claim(word)
}

// CheckBeforeWait says whether to notify the peer, for a caller that is about to wait for the peer.
// Unlike [Waker.Check] it also notifies a peer that sleeps quietly and polls at intervals (SPEC
// 6.4).
func (w *Waker) CheckBeforeWait() Wake { return w.claim(w.peer.Load(uint64(w.which))) }

// IsGone reports whether the peer has declared that it will never read records again. The result is
// always false for the sleeper for room, whose word has no value for this (SPEC 6.5).
func (w *Waker) IsGone() bool {
	return w.which == Records && w.peer.Load(uint64(w.which)) == layout.AsleepGone
}

// claim decides whether the caller notifies the peer, given the loaded word of the sleeper, which
// identifies a sleep. For each sleep, only one caller gets WakeNotify.
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

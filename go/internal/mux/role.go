// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"partywall.test/go/internal/clock"
	"partywall.test/go/internal/fault"
)

// A role is the right to read the records of the peer in one session. The goroutine that has the
// role is the driver of the session. Goroutines that wait while another one drives are followers,
// and the supervisor is the goroutine that drives while nobody waits. The session's lock guards the
// role.
//
//	free ──▶ driven ──▶ free, or offered to a follower ──▶ driven …
//	  └── tick: offered to a follower, or driven by the supervisor      driven ──▶ over
//
// Decision 0038 draws all transitions, and names the rules H1 to H8 by which the role passes from
// one goroutine to another.
type role struct {
	state    roleState
	isUrgent bool // of the driver
	heir     *follower
	// isApplying says that the driver holds the session's lock to apply a record. The driver checks
	// afterwards whether what it waits for has come, so nobody needs to wake it.
	isApplying bool
	// isPermanent says that only the supervisor drives, and never leaves the role. Tests compare
	// other ways of driving with this one.
	isPermanent bool

	urgent, background followers
	unused             followers // memory for later ones
	reclaimed          int       // times in a row that the role was taken back from the background
	takes              uint64    // how often the role was taken
	seen               uint64    // takes when the tick was started
	tick               clock.Tick
	isTicking          bool
}

type roleState uint8

const (
	roleFree    roleState = iota
	roleOffered           // to heir, which has not run yet
	roleDriven
	roleOver
)

// take takes the role of the driver if nobody has it, or if it is offered to a goroutine that has
// not run yet (rule H1 of decision 0038). The result says whether the caller is now the driver.
func (r *role) take(isUrgent bool) bool {
	switch r.state {
	case roleFree:
	case roleOffered:
		if r.heir.isUrgent && !isUrgent {
			return false
		}
		if isUrgent && !r.heir.isUrgent {
			r.reclaimed++
		}
	default:
		return false
	}
	r.state, r.isUrgent, r.heir = roleDriven, isUrgent, nil
	r.takes++
	return true
}

// offer offers the role of the driver to the urgent follower that has waited longest. If there is
// none and toBackground is true, the background follower that has waited longest gets the offer.
// The result is false if nobody gets it (rule H4 of decision 0038).
func (r *role) offer(toBackground bool) bool {
	heir := r.urgent.first
	if heir == nil && toBackground {
		heir = r.background.first
	}
	if heir == nil {
		return false
	}
	r.state, r.heir = roleOffered, heir
	if !fault.Is("heir_asleep") {
		heir.offered.wake()
	}
	return true
}

func (r *role) list(isUrgent bool) *followers {
	if isUrgent {
		return &r.urgent
	}
	return &r.background
}

// follow adds the calling goroutine to the followers, either the urgent ones or those in the
// background.
func (r *role) follow(isUrgent bool) *follower {
	f := r.unused.last
	if f == nil {
		f = &follower{offered: newNotice()}
	} else {
		r.unused.remove(f)
	}
	f.isUrgent = isUrgent
	r.list(isUrgent).add(f)
	return f
}

// unfollow removes a follower, and returns whether the role of the driver was offered to this
// follower.
func (r *role) unfollow(f *follower) bool {
	r.list(f.isUrgent).remove(f)
	f.offered.take() // an offer that another goroutine was faster to take
	r.unused.add(f)
	return r.heir == f
}

// startTick starts the timer after which a session that is still without a driver gets one (rule H3
// of decision 0038).
func (r *role) startTick() {
	if r.isTicking || fault.Is("no_tick") {
		return
	}
	r.isTicking, r.seen = true, r.takes
	r.tick.Start()
}

// end ends the role of the driver for ever, because the session ends. It returns false if the role
// had ended before.
func (r *role) end() bool {
	if r.state == roleOver {
		return false
	}
	r.state, r.heir = roleOver, nil
	r.tick.End()
	return true
}

// A follower is a goroutine that waits for an event of a session while another one drives the
// session.
type follower struct {
	offered    notice // the role is offered to it
	isUrgent   bool
	next, prev *follower
}

// followers is a list of followers of a session, of which the first has waited longest. The zero
// value is an empty list.
type followers struct{ first, last *follower }

func (l *followers) add(f *follower) {
	f.prev, f.next = l.last, nil
	if l.last == nil {
		l.first = f
	} else {
		l.last.next = f
	}
	l.last = f
}

func (l *followers) remove(f *follower) {
	if f.prev == nil {
		l.first = f.next
	} else {
		f.prev.next = f.next
	}
	if f.next == nil {
		l.last = f.prev
	} else {
		f.next.prev = f.prev
	}
	f.next, f.prev = nil, nil
}

// reclaimedMax is the most times in a row that an urgent waiter may take the role of the driver
// back from a background waiter. After that nobody gets the role before the next tick.
const reclaimedMax = 4

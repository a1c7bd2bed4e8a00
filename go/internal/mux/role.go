// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import "partywall.test/go/internal/fault"

// A role is the right to read the records of the peer. The goroutine that has it is the driver of
// the session. The lock of the session guards it.
//
//	free ──▶ driven ──▶ free, or offered to a follower ──▶ driven …
//	  └── tick: offered to a follower, or driven by the supervisor      driven ──▶ over
//
// Decision 0038 draws all transitions and names the rules of handing it over.
type role struct {
	state    roleState
	isUrgent bool // of the driver
	heir     *follower
	// isApplying says that the driver has the lock. It looks at its own event afterwards.
	isApplying bool
	// isPermanent says that the supervisor never leaves: the reference for tests.
	isPermanent bool

	urgent, background followers
	unused             followers // memory for later ones
	reclaimed          int       // times in a row that the role was taken back from the background
	takes              uint64    // how often the role was taken
	seen               uint64    // takes when the tick was started
	tick               tick
	isTicking          bool
}

type roleState uint8

const (
	roleFree    roleState = iota
	roleOffered           // to heir, which has not run yet
	roleDriven
	roleOver
)

// take takes the role if it is free, or if the goroutine to which it is offered has not run yet
// (H1).
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

// offer offers the role to the follower that has waited longest, to urgent ones first, and returns
// whether there is one (H4).
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

// list returns the followers that are as urgent.
func (r *role) list(isUrgent bool) *followers {
	if isUrgent {
		return &r.urgent
	}
	return &r.background
}

// follow adds a follower.
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

// unfollow removes a follower, and returns whether the role is offered to it.
func (r *role) unfollow(f *follower) bool {
	r.list(f.isUrgent).remove(f)
	f.offered.take() // an offer that another goroutine was faster to take
	r.unused.add(f)
	return r.heir == f
}

// startTick starts the tick that finds a role which stays free (H3).
func (r *role) startTick() {
	if r.isTicking || fault.Is("no_tick") {
		return
	}
	r.isTicking, r.seen = true, r.takes
	r.tick.start()
}

// end ends the role, and returns false if it was over.
func (r *role) end() bool {
	if r.state == roleOver {
		return false
	}
	r.state, r.heir = roleOver, nil
	r.tick.end()
	return true
}

// A follower is a goroutine that waits while another one drives.
type follower struct {
	offered    notice // the role is offered to it
	isUrgent   bool
	next, prev *follower
}

// followers is a list of followers; the first has waited longest. Its zero value is empty.
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

// reclaimedMax is the number of times in a row that an urgent waiter takes the role from a
// background one, before the role is left free instead.
const reclaimedMax = 4

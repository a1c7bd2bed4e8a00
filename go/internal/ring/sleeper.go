// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
)

// Which is one of the two things for which a side sleeps, records or room. Its value is the offset
// of the sleeper's word in the control page (SPEC 6.1).
type Which uint64

// The values of [Which]: the sleeper for records, and the sleeper for room.
const (
	Records Which = layout.ControlAsleepRecords
	Room    Which = layout.ControlAsleepRoom
)

// Sleeper declares to the peer that this process sleeps. Together with the peer's [Waker] it is an
// eventcount.
//
//	Sleeper                                  Waker, of the peer
//	(the caller drains its doorbell)         (its caller publishes what the sleeper waits for)
//	A1  epoch += 1; asleep = epoch           B1  publish
//	A2  full fence                           B2  full fence
//	A3  poll again; on success do not wait   B3  e = asleep
//	(the caller waits for the doorbell)      B4  e ≠ 0 and e was not notified: notify
//
// The stores of A1 and B1 and the loads of A3 and B3 are sequentially consistent, so the fences are
// implied (SPEC 4.7). If B3 does not see A1, then A3 sees B1: no wake-up is lost (SPEC 6.3).
type Sleeper struct {
	own   mem.Own // control page of this process
	which Which
	epoch uint64
}

// NewSleeper returns a sleeper that is awake. Its word lies in own, the control page of this
// process.
func NewSleeper(own mem.Own, which Which) *Sleeper { return &Sleeper{own: own, which: which} }

// Arm declares that this side is about to sleep. The caller drains its doorbell, then calls Arm,
// then polls again, and waits only if the poll finds nothing.
//
// If quiet is true, the peer does not notify after an ordinary commit, and the caller polls again
// after a bounded time (SPEC 6.4).
func (s *Sleeper) Arm(quiet bool) {
	if !fault.Is("same_epoch") || s.epoch == 0 {
		s.epoch = s.epoch%epochMax + 1
	}
	word := s.epoch
	if quiet {
		word |= layout.AsleepQuiet
	}
	s.own.Publish(uint64(s.which), word)
}

// Disarm declares that this side is awake. A peer that still sees the old sleep epoch notifies once
// at most, which is harmless.
func (s *Sleeper) Disarm() { s.own.Publish(uint64(s.which), 0) }

// Leave declares that this side will never read records again (SPEC 6.5). The caller then asks its
// [Waker] for room whether to notify the peer, and uses the sleeper no more. Leave panics for the
// sleeper for room, whose word has no such value.
func (s *Sleeper) Leave() {
	if s.which != Records {
		panic("ring: only a reader of records leaves")
	}
	s.own.Publish(uint64(s.which), layout.AsleepGone)
}

// epochMax is the highest sleep epoch; the epoch after it is 1 again. With or without the flag
// AsleepQuiet, epochMax differs from layout.AsleepGone.
const epochMax = layout.AsleepQuiet - 2

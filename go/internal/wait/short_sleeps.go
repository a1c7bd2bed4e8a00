// SPDX-License-Identifier: MIT OR Apache-2.0

package wait

import (
	"sync"
	"time"

	"partywall.test/go/internal/clock"
)

// ShortSleeps keeps a timer of the kernel running while a goroutine sleeps often.
//
// A processor that becomes idle stops the kernel's periodic tick, unless a timer is due before the
// next tick, and starts the tick again when a notification wakes it. Both write the register of its
// timer, which leaves the guest on a virtual machine. With a timer that is due soon, the processor
// does neither. And whenever the timer fires, the kernel and the Go runtime choose again where this
// process runs. If they choose the processor of the peer, yields take the place of sleeps from then
// on (decision 0054).
type ShortSleeps struct {
	last    time.Time // when the last sleep began
	started time.Time // when the timer was last started
	row     int       // sleeps in a row, each of which began soon after the one before

	mutex  sync.Mutex // guards the fields below
	pulse  *clock.Pulse
	isOver bool // closed, or the process can open no timer
}

// Begin must be called when a sleep is about to begin. One goroutine at a time may call it.
func (s *ShortSleeps) Begin() {
	now := time.Now()
	if s.isFrequent(now) && now.Sub(s.started) >= startGap {
		s.started = now
		s.start()
	}
}

// isFrequent counts a sleep that begins at the time now. It returns whether sleeps are frequent.
func (s *ShortSleeps) isFrequent(now time.Time) bool {
	if now.Sub(s.last) < frequentGap {
		s.row++
	} else {
		s.row = 0
	}
	s.last = now
	return s.row >= frequentRow
}

// start starts the timer. Where there is none, sleeps only cost more.
func (s *ShortSleeps) start() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.isOver {
		return
	}
	if s.pulse == nil {
		s.pulse = clock.NewPulse()
		s.isOver = s.pulse == nil
	}
	if s.pulse != nil {
		s.pulse.Start()
	}
}

// Close ends the timer. Any goroutine may call it, even while another is about to sleep.
func (s *ShortSleeps) Close() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.pulse != nil {
		s.pulse.End()
	}
	s.pulse, s.isOver = nil, true
}

const (
	// frequentGap is the time within which each of frequent sleeps begins after the one before.
	frequentGap = 250 * time.Microsecond
	// frequentRow is the number of sleeps in a row before the first of them that starts the timer,
	// so that a short burst costs no descriptor.
	frequentRow = 16
	// startGap is the time within which the timer is not started again, so that few sleeps take the
	// lock that all of a process share.
	startGap = clock.TickTime / 4
)

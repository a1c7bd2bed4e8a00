// SPDX-License-Identifier: MIT OR Apache-2.0

package wait

import (
	"sync"
	"time"

	"partywall.test/go/internal/sys"
)

// ShortSleeps keeps a timer of the kernel pending while a goroutine sleeps often. The timer is set
// again before it fires; after the last of many sleeps it fires once, and wakes nobody.
//
// A processor that becomes idle stops the kernel's periodic tick, unless a timer is due before the
// next tick, and starts the tick again when a notification wakes it. Both write the register of its
// timer, which leaves the guest on a virtual machine. With a timer that is due soon, the processor
// does neither (decision 0054).
type ShortSleeps struct {
	last    time.Time // when the last sleep began
	lastSet time.Time // when the timer was set
	row     int       // sleeps in a row, each of which began soon after the one before

	mutex  sync.Mutex // guards the fields below
	timer  *sys.Timerfd
	isOver bool // closed, or the process can open no timer
}

// Begin must be called when a sleep is about to begin. One goroutine at a time may call it.
func (s *ShortSleeps) Begin() {
	now := time.Now()
	if s.isDue(now) {
		s.lastSet = now
		s.set()
	}
}

// isDue counts a sleep that begins at the time now. It returns whether the timer has to be set.
func (s *ShortSleeps) isDue(now time.Time) bool {
	if now.Sub(s.last) < frequentGap {
		s.row++
	} else {
		s.row = 0
	}
	s.last = now
	return s.row >= frequentRow && now.Sub(s.lastSet) >= timerRenewal
}

// set sets the timer. Where there is none, sleeps only cost more, so errors are ignored.
func (s *ShortSleeps) set() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.timer == nil && !s.isOver {
		timer, err := sys.NewTimerfd()
		s.timer, s.isOver = timer, err != nil
	}
	if s.timer != nil {
		s.timer.Set(timerTime)
	}
}

// Close closes the timer. Any goroutine may call it, even while another is about to sleep.
func (s *ShortSleeps) Close() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.isOver = true
	if s.timer != nil {
		s.timer.Close()
		s.timer = nil
	}
}

const (
	// frequentGap is the time within which each of frequent sleeps begins after the one before.
	frequentGap = 250 * time.Microsecond
	// frequentRow is the number of sleeps in a row before the first of them for which the timer is
	// set, so that a short burst costs no descriptor.
	frequentRow = 16
	// timerTime is the time after which the timer fires: the shortest tick of Linux. A timer that
	// is due later does not keep such a tick.
	timerTime = time.Millisecond
	// timerRenewal is the time after which a sleep sets the timer again.
	timerRenewal = 500 * time.Microsecond
)

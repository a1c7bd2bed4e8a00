// SPDX-License-Identifier: MIT OR Apache-2.0

// Package wait decides how a goroutine waits: how long it polls before it sleeps.
//
//	Adaptive  poll for a budget, then sleep    the budget grows on hits, shrinks on misses
//	Spin      poll without end                 the least latency; occupies a core
//	Park      sleep at once                    no CPU time while nothing comes
//
// Before it sleeps, a goroutine lets a peer run that waits for this very processor: see yields.
// Only the goroutine that waits spins, never one in the background: on a CPU that two processes
// share, each would use up the CPU time of the other.
package wait

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"partywall.test/go/internal/sys"
)

// A Mode says how a goroutine waits: see the package comment.
type Mode uint8

// The modes.
const (
	Adaptive Mode = iota
	Spin
	Park
)

// A Budget is the time for which a wait polls before it sleeps. Polls that succeed lengthen it, and
// polls in vain shorten it, in the end to nothing. One goroutine uses it at a time.
type Budget struct {
	time, max time.Duration
	isLocal   bool // the peer is in this process
	yields    yields
	skip      uint32 // further waits that sleep without polling first
	skipped   uint32 // value from which skip last counted down; it doubles with each failure
}

// NewBudget returns a budget that begins at limit and never exceeds it.
func NewBudget(limit time.Duration) Budget { return Budget{time: limit, max: limit} }

// NewLocalBudget is NewBudget for a peer that is in this process. The peer runs while the goroutine
// yields to others, and may wait for the processor of the goroutine.
func NewLocalBudget(limit time.Duration) Budget {
	return Budget{time: limit, max: limit, isLocal: true}
}

// Time returns the time for which the next wait polls; 0 if it sleeps at once.
func (b *Budget) Time() time.Duration {
	if b.skip > 0 {
		b.skip--
		return 0
	}
	if b.time < budgetMin {
		b.time = b.max
	}
	if b.time < budgetMin {
		return 0
	}
	return b.time
}

// Hit lengthens the budget, because polling found what the goroutine waits for.
func (b *Budget) Hit() {
	b.skipped = 0
	b.time = min(b.max, b.time*2)
}

// Miss shortens the budget, because it was used up before polling found anything.
func (b *Budget) Miss() {
	if !b.isLocal && isFutile() {
		*b = Budget{}
		return
	}
	b.time /= 2
	if b.time < max(b.max/4, budgetMin) {
		b.time = 0
		b.skipped = min(max(b.skipped*2, skipMin), skipMax)
		b.skip = b.skipped
	}
}

// Poll calls poll until it returns true or the mode says to sleep, and returns the last result of
// poll. In the mode Spin it returns false after about checkEvery, so that the caller can check for
// other reasons to stop waiting.
func (b *Budget) Poll(mode Mode, poll func() bool) bool {
	switch mode {
	case Park:
		return poll() || b.yields.poll(poll)
	case Spin:
		return b.pollFor(checkEvery, poll)
	}
	limit := b.Time()
	if limit == 0 {
		return poll() || b.yields.poll(poll)
	}
	if b.pollFor(limit, poll) {
		b.Hit()
		return true
	}
	b.Miss()
	return false
}

// pollFor calls poll for about limit.
func (b *Budget) pollFor(limit time.Duration, poll func() bool) bool {
	if b.isLocal {
		return pollLocally(limit, poll)
	}
	return pollRemotely(limit, poll)
}

// pollLocally calls poll, and lets other goroutines run after a few calls, until that has taken
// about limit. The time for which other goroutines run counts only up to yieldMax for each yield:
// the peer may be among them, and a yield costs less than a sleep and a wake-up.
func pollLocally(limit time.Duration, poll func() bool) bool {
	for used := time.Duration(0); used < limit; {
		started := time.Now()
		for range yieldsPerClockRead {
			for range pollsPerYield {
				if poll() {
					return true
				}
			}
			runtime.Gosched()
		}
		used += min(time.Since(started), yieldsPerClockRead*yieldMax)
	}
	return poll()
}

// pollRemotely calls poll for about limit. It stops early if other goroutines want to run on this
// processor.
func pollRemotely(limit time.Duration, poll func() bool) bool {
	// The first polls come before any read of the clock, which takes as long as sending a short
	// message.
	if pollTimes(poll) {
		return true
	}
	started := time.Now()
	yielded := time.Duration(0)
	for {
		if pollTimes(poll) {
			return true
		}
		elapsed := time.Since(started)
		if elapsed >= limit {
			return false
		}
		if elapsed-yielded < yieldEvery {
			continue
		}
		runtime.Gosched()
		yielded = time.Since(started)
		if yielded-elapsed > yieldMax {
			return poll()
		}
	}
}

func pollTimes(poll func() bool) bool {
	for range pollsPerClockRead {
		if poll() {
			return true
		}
	}
	return false
}

// isFutile reports whether spinning keeps the peer from running, because this process has one CPU
// or a CPU quota. That is found out only after some waits have polled in vain.
func isFutile() bool {
	if misses.Load() < missesUnchecked {
		misses.Add(1)
		return false
	}
	return futile()
}

var misses atomic.Uint32

var futile = sync.OnceValue(func() bool { return runtime.NumCPU() < 2 || sys.HasCPUQuota() })

const (
	// budgetMin is the shortest budget; a shorter one counts as 0.
	budgetMin = time.Microsecond
	// skipMin and skipMax bound how many waits sleep at once before one polls again.
	skipMin, skipMax = 4, 256
	// pollsPerClockRead is the number of polls between two reads of the clock. A poll of shared
	// memory takes about 2 ns, a read of the clock 40 ns.
	pollsPerClockRead = 128
	// pollsPerYield is the number of polls between two yields for a peer in this process.
	pollsPerYield = 16
	// yieldsPerClockRead is the number of such yields between two reads of the clock.
	yieldsPerClockRead = 8
	// checkEvery is the time for which the mode Spin polls before it returns to the caller.
	checkEvery = 2 * time.Millisecond
	// yieldEvery is the time for which a goroutine polls before it lets other goroutines run.
	yieldEvery = 10 * time.Microsecond
	// yieldMax is the longest time that a yield takes while no other goroutine wants to run. After
	// a longer one, polling stops.
	yieldMax = 2 * time.Microsecond
	// missesUnchecked is the number of misses in this process before isFutile checks for a single
	// CPU or a CPU quota.
	missesUnchecked = 3
)

// SPDX-License-Identifier: MIT OR Apache-2.0

// Package wait decides how a goroutine waits: how long it polls before it sleeps.
//
//	Adaptive  poll for a budget, then sleep    the budget grows on hits, shrinks on misses
//	Spin      poll without end                 the least latency; occupies a core
//	Park      sleep at once                    no CPU time while nothing comes
//
// Before it sleeps, a goroutine lets a peer run that waits for this very processor: see the type
// yields. Only a goroutine that waits for a message or for room polls, never a goroutine in the
// background: on a CPU that two processes share, it would use up the CPU time of the peer.
package wait

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"partywall.test/go/internal/sys"
)

// A Mode says how a goroutine waits: Adaptive, Spin or Park. The package comment describes them.
type Mode uint8

// The modes.
const (
	Adaptive Mode = iota
	Spin
	Park
)

// A Budget is the time for which a goroutine polls before it sleeps. Polls that find something
// lengthen the time, and polls in vain shorten it, in the end to nothing. One goroutine uses a
// Budget at a time.
type Budget struct {
	time, max time.Duration
	isLocal   bool // the peer is in this process
	peer      int  // process of the peer, or 0 if it is unknown
	yields    yields
	skip      uint32 // further waits that sleep without polling first
	skipped   uint32 // value from which skip last counted down; it doubles with each failure
}

// NewBudget returns a budget whose time is limit at first, and never longer. The argument peer is
// the process id of the peer, or 0 if it is unknown.
func NewBudget(limit time.Duration, peer int) Budget {
	return Budget{time: limit, max: limit, peer: peer}
}

// NewLocalBudget returns the same as NewBudget, for a goroutine whose peer is in this process. The
// peer runs while the goroutine yields to others, and may wait for the processor of the goroutine.
func NewLocalBudget(limit time.Duration) Budget {
	return Budget{time: limit, max: limit, isLocal: true}
}

// Time returns the time for which the next wait polls. The result is 0 if the next wait sleeps at
// once.
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

// Miss shortens the budget, because polling for its whole time found nothing.
func (b *Budget) Miss() {
	if !b.isLocal && b.isFutile() {
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
// poll. In the mode Spin it gives up after about checkEvery and returns false, so that the caller
// can check for other reasons to stop waiting.
func (b *Budget) Poll(mode Mode, poll func() bool) bool {
	switch mode {
	case Park:
		return poll() || b.yields.poll(poll)
	case Spin:
		isFound, _ := b.pollFor(checkEvery, poll)
		return isFound
	}
	limit := b.Time()
	if limit == 0 {
		return poll() || b.yields.poll(poll)
	}
	isFound, isUsedUp := b.pollFor(limit, poll)
	switch {
	case isFound:
		b.Hit()
	case isUsedUp:
		b.Miss()
	}
	return isFound
}

// pollFor calls poll, in the way that suits where the peer runs, until poll returns true or about
// the time limit has passed. The second result is false if goroutines that compute have ended the
// polling earlier, so that it does not count as in vain.
func (b *Budget) pollFor(limit time.Duration, poll func() bool) (isFound, isUsedUp bool) {
	if b.isLocal {
		return pollLocally(limit, poll)
	}
	return pollRemotely(limit, poll), true
}

// pollLocally calls poll, and lets other goroutines run after a few calls, until that has taken
// about limit. The time for which other goroutines run counts only up to yieldMax for each yield:
// the peer may be among them, and a yield costs less than a sleep and a wake-up. It stops after a
// yield of more than 1 ms (computeMin): the goroutines that ran then compute, and the caller has to
// check its deadline. In that case the second result is false, and otherwise true.
func pollLocally(limit time.Duration, poll func() bool) (isFound, isUsedUp bool) {
	started, last := time.Now(), time.Duration(0)
	for used := time.Duration(0); used < limit; {
		for range pollsPerYield {
			if poll() {
				return true, true
			}
		}
		runtime.Gosched()
		now := time.Since(started)
		if now-last > computeMin {
			return poll(), false
		}
		used += min(now-last, yieldMax)
		last = now
	}
	return poll(), true
}

// pollRemotely calls poll until it returns true, for about the time limit. It stops early if other
// goroutines want to run on this processor.
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

// pollTimes calls poll pollsPerClockRead times, or until it returns true. An atomic operation
// between two polls keeps the processor from starting the next polls before the first is answered.
// It would drop all of them when the peer writes the word, which takes longer than the operation.
func pollTimes(poll func() bool) bool {
	var polled atomic.Uint32
	for polled.Add(1) <= pollsPerClockRead {
		if poll() {
			return true
		}
	}
	return false
}

// isFutile reports whether polling keeps the peer from running, because both processes may run on
// one CPU only, and it is the same, or because this process has a CPU quota. The system is asked
// about these only after some waits have polled in vain.
func (b *Budget) isFutile() bool {
	if misses.Load() < missesUnchecked {
		misses.Add(1)
		return false
	}
	return hasCPUQuota() || sys.SharesOneCPU(b.peer)
}

var misses atomic.Uint32

var hasCPUQuota = sync.OnceValue(sys.HasCPUQuota)

const (
	// budgetMin is the shortest budget. A budget that would become shorter is 0, which means that
	// the next wait sleeps at once.
	budgetMin = time.Microsecond
	// skipMin and skipMax bound the number of waits that sleep at once, after polling was in vain,
	// before a wait polls again.
	skipMin, skipMax = 4, 256
	// pollsPerClockRead is the number of polls between two reads of the clock. A poll of shared
	// memory takes about 8 ns, a read of the clock 40 ns.
	pollsPerClockRead = 128
	// pollsPerYield is the number of polls between two yields for a peer in this process.
	pollsPerYield = 16
	// computeMin is the longest yield after which polling for a peer in this process goes on.
	// During a longer yield, another goroutine computes; compared with its time slice, a sleep
	// costs little.
	computeMin = time.Millisecond
	// checkEvery is the time for which the mode Spin polls before it returns to the caller, so that
	// the caller can check for other reasons to stop waiting.
	checkEvery = 2 * time.Millisecond
	// yieldEvery is the time for which a waiting goroutine polls before it lets other goroutines
	// run.
	yieldEvery = 10 * time.Microsecond
	// yieldMax is the longest time that runtime.Gosched takes while no other goroutine wants to
	// run. If it takes longer, polling for a peer in another process stops.
	yieldMax = 2 * time.Microsecond
	// missesUnchecked is the number of waits in this process that may poll in vain before the
	// system is asked for the CPUs of both processes and the CPU quota.
	missesUnchecked = 3
)

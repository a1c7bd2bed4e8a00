// SPDX-License-Identifier: MIT OR Apache-2.0

package wait

import (
	"time"

	"partywall.test/go/internal/sys"
)

// yields decides whether a goroutine yields its processor before it sleeps. Where the peer waits
// for this very processor, it runs at once, and its answer is found without a sleep and a wake-up.
//
//	poll ──nothing──▶ yield ──▶ poll ──nothing──▶ sleep
//
// A yield in vain takes about as long as the shortest system call, and while the peer runs on
// another processor each is in vain. So yields in vain suspend it, for ever more waits. So does a
// yield that takes long, for many more: another thread has used up its time slice meanwhile, which
// it could not have done against a goroutine that sleeps and is woken.
type yields struct {
	skip    uint32 // further waits that sleep without a yield
	skipped uint32 // value from which skip last counted down; it doubles with each failure
}

// poll yields unless that is suspended, and returns what poll returns then, or false.
func (y *yields) poll(poll func() bool) bool {
	if y.skip > 0 {
		y.skip--
		return false
	}
	started := time.Now()
	sys.Yield()
	isFound := poll()
	y.count(isFound, time.Since(started))
	return isFound
}

// count counts a yield that took the time elapsed, and after which poll returned isFound.
func (y *yields) count(isFound bool, elapsed time.Duration) {
	switch {
	case elapsed > yieldLong:
		y.skipped = min(max(y.skipped*2, longSkipMin), longSkipMax)
	case isFound:
		y.skipped = 0
	default:
		y.skipped = max(y.skipped, min(max(y.skipped*2, skipMin), skipMax))
	}
	y.skip = y.skipped
}

const (
	// yieldLong is the longest time of a yield that pays. A goroutine better sleeps while a peer
	// works for longer, or another thread runs: its wake-up then comes at once.
	yieldLong = 200 * time.Microsecond
	// longSkipMin and longSkipMax bound how many waits sleep without a yield after a long one.
	longSkipMin, longSkipMax = 1024, 1 << 16
)

// SPDX-License-Identifier: MIT OR Apache-2.0

package wait

import (
	"time"

	"partywall.test/go/internal/sys"
)

// yields decides whether a goroutine yields its processor to other threads before it sleeps. If the
// peer waits for the same processor, the peer then runs at once, and its answer is found without a
// sleep and a wake-up.
type yields struct {
	skip    uint32 // further waits that sleep without a yield
	skipped uint32 // value from which skip last counted down; it doubles with each failure
}

// poll yields the processor and returns the result of calling poll afterwards. While yielding is
// suspended, it returns false.
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

// count decides for how many waits yielding is now suspended, after a yield that took the time
// elapsed. The argument isFound says whether polling has found something after this yield.
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
	// yieldLong is the longest time that a yield may take and still pay. If the peer works for
	// longer, or another thread runs, it is better to sleep, because the goroutine is then woken at
	// once.
	yieldLong = 200 * time.Microsecond
	// longSkipMin and longSkipMax bound the number of waits that sleep without a yield, after a
	// yield that took longer than yieldLong.
	longSkipMin, longSkipMax = 1024, 1 << 16
)

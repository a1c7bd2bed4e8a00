// SPDX-License-Identifier: MIT OR Apache-2.0

package wait

import (
	"testing"
	"time"
)

// waitsWithoutYield returns how many waits do not yield the processor before one does.
func waitsWithoutYield(y *yields) int {
	count := 0
	for {
		polls := 0
		if y.skip == 0 {
			return count
		}
		if y.poll(func() bool { polls++; return true }) || polls != 0 {
			return -1
		}
		count++
	}
}

func TestYieldsInVainAreSuspended(t *testing.T) {
	var y yields
	for _, want := range []int{4, 8, 16, 32, 64, 128, 256, 256} {
		y.count(false, time.Microsecond)
		if got := waitsWithoutYield(&y); got != want {
			t.Fatalf("%d waits do not yield, want %d", got, want)
		}
	}
	y.count(true, time.Microsecond)
	if got := waitsWithoutYield(&y); got != 0 {
		t.Errorf("%d waits do not yield after a success", got)
	}
}

// After a yield in which another program has used its time slice, yields are suspended for longer
// than after others, because such a yield costs more than many wake-ups.
func TestLongYieldsAreSuspendedForLonger(t *testing.T) {
	for _, isFound := range []bool{false, true} {
		var y yields
		for _, want := range []int{1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 65_536} {
			y.count(isFound, yieldLong+1)
			if got := waitsWithoutYield(&y); got != want {
				t.Fatalf("%d waits do not yield, want %d", got, want)
			}
		}
		y.count(false, time.Microsecond)
		if got := waitsWithoutYield(&y); got != 65_536 {
			t.Errorf("%d waits do not yield after one in vain", got)
		}
	}
}

func TestPollFollowsTheYield(t *testing.T) {
	for _, want := range []bool{false, true} {
		var y yields
		polls := 0
		if got := y.poll(func() bool { polls++; return want }); got != want || polls != 1 {
			t.Errorf("%d polls return %v, want one and %v", polls, got, want)
		}
	}
}

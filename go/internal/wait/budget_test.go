// SPDX-License-Identifier: MIT OR Apache-2.0

package wait

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"partywall.test/go/internal/sys"
)

const limit = 50 * time.Microsecond

// sleepsUntilPoll returns how many waits sleep at once before the budget lets a wait poll.
func sleepsUntilPoll(b *Budget) int {
	count := 0
	for b.Time() == 0 {
		count++
	}
	return count
}

func TestBudgetShrinksAndIsSuspended(t *testing.T) {
	if hasCPUQuota() || sys.SharesOneCPU(0) {
		t.Skip("polling is futile for this process, which the budget would find out")
	}
	b := NewBudget(limit, 0)
	var times []time.Duration
	for range 3 {
		times = append(times, b.Time())
		b.Miss()
	}
	want := []time.Duration{limit, limit / 2, limit / 4}
	for i := range want {
		if times[i] != want[i] {
			t.Fatalf("budgets are %v, want %v", times, want)
		}
	}
	for _, want := range []int{4, 8, 16, 32, 64, 128, 256, 256} {
		if got := sleepsUntilPoll(&b); got != want {
			t.Fatalf("%d waits sleep at once, want %d", got, want)
		}
		for b.skip == 0 {
			b.Miss()
		}
	}
}

func TestHitRestoresBudget(t *testing.T) {
	b := NewBudget(limit, 0)
	b.time, b.skipped = limit/4, 64
	b.Hit()
	b.Hit()
	b.Hit()
	if b.Time() != limit || b.skipped != 0 {
		t.Errorf("the budget is %v, skipped %d", b.time, b.skipped)
	}
}

func TestBudgetOfNothingNeverPolls(t *testing.T) {
	for _, limit := range []time.Duration{0, 999 * time.Nanosecond} {
		b := NewBudget(limit, 0)
		for range 10 {
			if b.Time() != 0 {
				t.Fatalf("a budget of %v polls", limit)
			}
		}
	}
}

func TestPollFindsWhatIsThere(t *testing.T) {
	for _, mode := range []Mode{Adaptive, Spin, Park} {
		b := NewBudget(limit, 0)
		polls := 0
		if !b.Poll(mode, func() bool { polls++; return true }) || polls != 1 {
			t.Errorf("mode %d polls %d times", mode, polls)
		}
	}
}

func TestPollEnds(t *testing.T) {
	for _, mode := range []Mode{Adaptive, Spin, Park} {
		b := NewBudget(limit, 0)
		polls := 0
		if b.Poll(mode, func() bool { polls++; return false }) {
			t.Errorf("mode %d found something", mode)
		}
		if mode == Park && polls != 2 || mode != Park && polls <= pollsPerClockRead {
			t.Errorf("mode %d polled %d times", mode, polls)
		}
	}
}

func TestPollFindsWhatComesLater(t *testing.T) {
	left := 1000 * pollsPerClockRead
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		// The budget, an hour, is never used up. But other goroutines may want the processor, which
		// ends a poll early.
		b := NewBudget(time.Hour, 0)
		if b.Poll(Adaptive, func() bool { left--; return left < 0 }) {
			return
		}
	}
	t.Error("nothing found")
}

// While a goroutine polls, its peer in the same process needs the processor, more than once and for
// longer than an idle yield takes. The peer must run.
func TestLocalPeerRunsMeanwhile(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, mode := range []Mode{Adaptive, Spin} {
		// A step takes longer if the system stops the process meanwhile, which ends a poll early.
		isFound := false
		for end := time.Now().Add(30 * time.Second); !isFound && time.Now().Before(end); {
			b := NewLocalBudget(time.Hour)
			isFound = pollForSteps(&b, mode, 20, 5*yieldMax)
		}
		if !isFound {
			t.Errorf("mode %d: polling ends while the peer runs", mode)
		}
	}
}

// Goroutines that compute for long end the polling, so that the caller checks its deadline.
func TestGoroutinesThatComputeEndALocalPoll(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, mode := range []Mode{Adaptive, Spin} {
		b := NewLocalBudget(time.Hour)
		if pollForSteps(&b, mode, 100, 2*computeMin) {
			t.Errorf("mode %d: polling goes on through 100 long steps of another goroutine", mode)
		}
		if b.Time() != time.Hour {
			t.Errorf("mode %d: polling that other goroutines end counts as in vain", mode)
		}
	}
}

// pollForSteps polls once, with the budget b, while another goroutine makes a number of steps that
// each take the time step or longer. It returns whether polling went on until the last step.
func pollForSteps(b *Budget, mode Mode, steps int32, step time.Duration) bool {
	var made atomic.Int32
	var isOver atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range steps {
			for started := time.Now(); time.Since(started) < step && !isOver.Load(); {
			}
			made.Add(1)
			runtime.Gosched()
		}
	}()
	isFound := b.Poll(mode, func() bool { return made.Load() == steps })
	isOver.Store(true)
	<-ended
	return isFound
}

func TestLocalPollEnds(t *testing.T) {
	b := NewLocalBudget(limit)
	// If the system stops the process meanwhile, the poll ends early and does not count as in vain.
	for end := time.Now().Add(30 * time.Second); b.Time() == limit; {
		if time.Now().After(end) {
			t.Fatal("no poll in vain shortens the budget")
		}
		polls := 0
		if b.Poll(Adaptive, func() bool { polls++; return false }) {
			t.Error("found something")
		}
		if least := pollsPerYield + 1; polls < least {
			t.Errorf("polled %d times, want %d or more", polls, least)
		}
	}
	for range 2 {
		b.Miss()
	}
	if got := sleepsUntilPoll(&b); got != skipMin {
		t.Errorf("%d waits sleep at once after polls in vain, want %d", got, skipMin)
	}
}

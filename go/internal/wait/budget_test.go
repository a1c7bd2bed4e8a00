// SPDX-License-Identifier: MIT OR Apache-2.0

package wait

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
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
	if futile() {
		t.Skip("spinning is futile on this machine, which the budget would find out")
	}
	b := NewBudget(limit)
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
	b := NewBudget(limit)
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
		b := NewBudget(limit)
		for range 10 {
			if b.Time() != 0 {
				t.Fatalf("a budget of %v polls", limit)
			}
		}
	}
}

func TestPollFindsWhatIsThere(t *testing.T) {
	for _, mode := range []Mode{Adaptive, Spin, Park} {
		b := NewBudget(limit)
		polls := 0
		if !b.Poll(mode, func() bool { polls++; return true }) || polls != 1 {
			t.Errorf("mode %d polls %d times", mode, polls)
		}
	}
}

func TestPollEnds(t *testing.T) {
	for _, mode := range []Mode{Adaptive, Spin, Park} {
		b := NewBudget(limit)
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
		b := NewBudget(time.Hour)
		if b.Poll(Adaptive, func() bool { left--; return left < 0 }) {
			return
		}
	}
	t.Error("nothing found")
}

// A goroutine that spins yields its processor to a peer in the same process, more than once and for
// longer than an idle yield takes. The peer must run.
func TestLocalPeerRunsMeanwhile(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	// Spin returns after checkEvery, and other programs may stop this one for longer.
	isFound := false
	for end := time.Now().Add(30 * time.Second); !isFound && time.Now().Before(end); {
		b := NewLocalBudget()
		isFound = pollForSteps(&b, 20)
	}
	if !isFound {
		t.Error("polling ends while the peer runs")
	}
}

// pollForSteps spins once, with the budget b, while another goroutine makes a number of short
// steps. It returns whether polling went on until the last step.
func pollForSteps(b *Budget, steps int32) bool {
	var made atomic.Int32
	var isOver atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range steps {
			for started := time.Now(); time.Since(started) < 5*yieldMax && !isOver.Load(); {
			}
			made.Add(1)
			runtime.Gosched()
		}
	}()
	isFound := b.Poll(Spin, func() bool { return made.Load() == steps })
	isOver.Store(true)
	<-ended
	return isFound
}

// For a peer in this process only the mode Spin polls more than once.
func TestLocalPeerIsNotPolled(t *testing.T) {
	for mode, isSpinning := range map[Mode]bool{Adaptive: false, Park: false, Spin: true} {
		b := NewLocalBudget()
		for range 10 {
			polls := 0
			if b.Poll(mode, func() bool { polls++; return false }) {
				t.Errorf("mode %d found something", mode)
			}
			if (polls > 1) != isSpinning {
				t.Errorf("mode %d polls %d times", mode, polls)
			}
		}
	}
}

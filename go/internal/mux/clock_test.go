// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// waitFor waits until the functions of n timers were called. It returns the numbers of these timers
// in the order of the calls.
func waitFor(t *testing.T, calls <-chan int, n int) (found []int) {
	t.Helper()
	for range n {
		select {
		case call := <-calls:
			found = append(found, call)
		case <-within(t).Done():
			t.Fatalf("%d calls of %d", len(found), n)
		}
	}
	return found
}

// The functions of a clock's timers are called in the order in which the timers were started, each
// once, and not before 1 ms has passed.
func TestTicksAreCalledInOrder(t *testing.T) {
	var c clock
	calls := make(chan int, 100)
	ticks := make([]tick, 5)
	for i := range ticks {
		ticks[i] = c.newTick(func() { calls <- i })
	}
	mustNotBeTakenEarly(t, &c)
	for range 20 {
		var started time.Time
		for _, i := range []int{3, 1, 0, 2, 4} {
			started = time.Now()
			ticks[i].start()
			if i == 1 {
				// The kernel's timer has fired for these two timers of the clock, and is set again
				// for those that are started next.
				waitFor(t, calls, 2)
			}
			// The next timers are started at another time than the first ones, so they are due at
			// another time.
			for time.Since(started) < tickTime/4 {
				runtime.Gosched()
			}
		}
		if found := waitFor(t, calls, 3); !slices.Equal(found, []int{0, 2, 4}) {
			t.Fatalf("the calls come as %v", found)
		}
		if took := time.Since(started); took < tickTime {
			t.Fatalf("the last call comes after %v", took)
		}
	}
	for _, tick := range ticks {
		tick.end()
	}
	if len(calls) > 0 {
		t.Error("a tick is called twice")
	}
}

// mustNotBeTakenEarly looks for a due timer right after one was started, which is too early. On a
// busy machine the look may come when the timer is due, and is then made again.
func mustNotBeTakenEarly(t *testing.T, c *clock) {
	t.Helper()
	end := time.Now().Add(testDeadline)
	for isEarly := false; !isEarly; {
		if time.Now().After(end) {
			t.Fatal("each look comes too late")
		}
		tick := c.newTick(func() {})
		started := time.Now()
		tick.start()
		call := c.takeDue()
		if isEarly = time.Since(started) < tickTime; isEarly && call != nil {
			t.Fatal("a tick is taken before its time")
		}
		tick.end()
	}
}

// The function of a timer that was ended is not called, and those of other timers are. When the
// last timer of the process ends, the descriptor of the kernel's timer is closed.
func TestEndedTickIsNotCalled(t *testing.T) {
	var c clock
	calls := make(chan int, 100)
	for range 100 {
		first, second := c.newTick(func() { calls <- 1 }), c.newTick(func() { calls <- 2 })
		first.start()
		second.start()
		first.end()
		if found := waitFor(t, calls, 1); found[0] == 1 {
			waitFor(t, calls, 1) // the tick was due before it ended
		}
		second.start()
		second.end()
		first.start()
		if c.first != nil || c.file != nil || c.ticks != 0 {
			t.Fatal("a clock without ticks is open")
		}
	}
}

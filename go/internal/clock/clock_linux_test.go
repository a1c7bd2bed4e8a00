// SPDX-License-Identifier: MIT OR Apache-2.0

package clock

import (
	"runtime"
	"slices"
	"testing"
	"time"
)

// testTime is the longest time that a test waits for an expected event.
const testTime = 30 * time.Second

// waitFor waits until the functions of n timers were called. It returns the numbers of these timers
// in the order of the calls.
func waitFor(t *testing.T, calls <-chan int, n int) (found []int) {
	t.Helper()
	for range n {
		select {
		case call := <-calls:
			found = append(found, call)
		case <-time.After(testTime):
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
	ticks := make([]Tick, 5)
	for i := range ticks {
		ticks[i] = c.newTick(func() { calls <- i })
	}
	mustNotBeTakenEarly(t, &c)
	for range 20 {
		var started time.Time
		for _, i := range []int{3, 1, 0, 2, 4} {
			started = time.Now()
			ticks[i].Start()
			if i == 1 {
				// The kernel's timer has fired for these two timers of the clock, and is set again
				// for those that are started next.
				waitFor(t, calls, 2)
			}
			// The next timers are started at another time than the first ones, so they are due at
			// another time.
			for time.Since(started) < TickTime/4 {
				runtime.Gosched()
			}
		}
		if found := waitFor(t, calls, 3); !slices.Equal(found, []int{0, 2, 4}) {
			t.Fatalf("the calls come as %v", found)
		}
		if took := time.Since(started); took < TickTime {
			t.Fatalf("the last call comes after %v", took)
		}
	}
	for _, tick := range ticks {
		tick.End()
	}
	if len(calls) > 0 {
		t.Error("a tick is called twice")
	}
}

// mustNotBeTakenEarly looks for a due timer right after one was started, which is too early. On a
// busy machine the look may come when the timer is due, and is then made again.
func mustNotBeTakenEarly(t *testing.T, c *clock) {
	t.Helper()
	end := time.Now().Add(testTime)
	for isEarly := false; !isEarly; {
		if time.Now().After(end) {
			t.Fatal("each look comes too late")
		}
		tick := c.newTick(func() {})
		started := time.Now()
		tick.Start()
		call := c.takeDue()
		if isEarly = time.Since(started) < TickTime; isEarly && call != nil {
			t.Fatal("a tick is taken before its time")
		}
		tick.End()
	}
}

// The function of a timer that was ended is not called, and those of other timers are. When the
// last timer of the process ends, the descriptor of the kernel's timer is closed.
func TestEndedTickIsNotCalled(t *testing.T) {
	var c clock
	calls := make(chan int, 100)
	for range 100 {
		first, second := c.newTick(func() { calls <- 1 }), c.newTick(func() { calls <- 2 })
		first.Start()
		second.Start()
		first.End()
		if found := waitFor(t, calls, 1); found[0] == 1 {
			waitFor(t, calls, 1) // the tick was due before it ended
		}
		second.Start()
		second.End()
		first.Start()
		if c.first != nil || c.file != nil || c.ticks != 0 {
			t.Fatal("a clock without ticks is open")
		}
	}
}

// While a timer of the clock runs, a pulse starts none. Otherwise it starts its own, which fires
// once.
func TestPulseStartsNoSecondTimer(t *testing.T) {
	var c clock
	called, pulsed := make(chan int, 100), make(chan int, 100)
	tick := c.newTick(func() { called <- 1 })
	pulse := Pulse{c.newTick(func() { pulsed <- 2 })}
	running := func() (isTick, isPulse bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return tick.isRunning, pulse.tick.isRunning
	}
	for range 20 {
		tick.Start()
		// On a busy machine the tick may fire before the pulse starts, which then runs alone.
		pulse.Start()
		if isTick, isPulse := running(); isTick && isPulse {
			t.Fatal("a pulse starts its timer although another runs")
		}
		waitFor(t, called, 1)
		for _, isPulse := running(); isPulse; _, isPulse = running() {
			runtime.Gosched()
		}
	}
	alone := len(pulsed)
	pulse.Start()
	pulse.Start()
	waitFor(t, pulsed, alone+1)
	pulse.End()
	tick.End()
	if c.file != nil {
		t.Error("a clock without timers is open")
	}
}

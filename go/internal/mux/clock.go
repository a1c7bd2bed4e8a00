// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"os"
	"sync"
	"syscall"
	"time"

	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/sys"
)

// A tick calls a function after tickTime.
type tick interface {
	// start makes the call come after tickTime. The tick does not run at this time.
	start()
	// end stops the tick for ever. A call that has begun goes on.
	end()
}

// tickTime is the time after which a role that stayed free is offered, or kept.
const tickTime = time.Millisecond

// A clock has the ticks of all sessions of this process, which one timer of the kernel calls
// (decision 0044).
//
//	first tick made ──▶ descriptor and goroutine ──▶ last tick ended: both are gone
//	start ──▶ first … last ──▶ called, in this order
//
// A timer of the Go runtime would give a timeout to each sleep of a thread that waits for the
// network. To set and to cancel that takes the kernel longer than a message takes.
type clock struct {
	mu          sync.Mutex
	ticks       int // that have not ended
	timer       *sys.Timerfd
	file        *os.File   // owns the descriptor of the timer; nil while there is no tick
	first, last *clockTick // that run; each waits for the same time, so the first is due first
}

// processClock is the clock of this process.
var processClock clock

// A clockTick is one tick of a clock, whose lock guards it.
type clockTick struct {
	clock      *clock
	call       func()
	due        time.Time
	isRunning  bool
	isEnded    bool
	next, prev *clockTick
}

// newTick returns a tick. Without a timer of the kernel it is one of the runtime.
func (c *clock) newTick(call func()) tick {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil && !c.open() {
		return newRuntimeTick(call)
	}
	c.ticks++
	return &clockTick{clock: c, call: call}
}

// open makes the timer, and starts the goroutine that waits for it. It returns false if this
// process has no descriptor left, this system has no such timer, or nothing can wait for it.
func (c *clock) open() bool {
	timer, err := sys.NewTimerfd()
	if err != nil {
		return false
	}
	file := os.NewFile(uintptr(timer.Descriptor()), "clock")
	raw, err := file.SyscallConn()
	if err == nil {
		err = file.SetReadDeadline(time.Time{}) // fails if Go's poller does not watch the timer
	}
	if err != nil {
		_ = file.Close()
		return false
	}
	c.timer, c.file = timer, file
	go c.wait(file, raw)
	return true
}

// wait calls the ticks that are due whenever the timer has fired, until its deadline has passed. It
// then closes the timer, which nobody else can do while the goroutine waits for the timer.
func (c *clock) wait(file *os.File, raw syscall.RawConn) {
	_ = raw.Read(func(uintptr) bool {
		for call := c.takeDue(); call != nil; call = c.takeDue() {
			call()
		}
		return false
	})
	_ = file.Close()
}

// takeDue stops the first tick if it is due, and returns its function. Otherwise it sets the timer
// for the first tick, and returns nil.
func (c *clock) takeDue() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.first
	if t == nil {
		return nil
	}
	if rest := time.Until(t.due); rest > 0 && !fault.Is("tick_early") {
		c.timer.Set(rest)
		return nil
	}
	c.remove(t)
	return t.call
}

func (c *clock) remove(t *clockTick) {
	if t.prev == nil {
		c.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		c.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.next, t.prev, t.isRunning = nil, nil, false
}

func (t *clockTick) start() {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.isEnded || t.isRunning {
		return
	}
	t.due, t.isRunning, t.prev = time.Now().Add(tickTime), true, c.last
	if c.last == nil {
		c.first = t
		c.timer.Set(tickTime)
	} else {
		c.last.next = t
	}
	c.last = t
}

func (t *clockTick) end() {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.isEnded {
		return
	}
	t.isEnded = true
	if t.isRunning {
		c.remove(t)
	}
	c.ticks--
	if c.ticks == 0 {
		// The error is ignored: the descriptor is open, and has deadlines.
		_ = c.file.SetReadDeadline(time.Unix(1, 0))
		c.timer, c.file = nil, nil
	}
}

// A runtimeTick is a timer of the Go runtime, which is made by the first start.
type runtimeTick struct {
	call  func()
	timer *time.Timer
}

// newRuntimeTick returns a tick that the runtime calls, in a goroutine of its own.
func newRuntimeTick(call func()) *runtimeTick { return &runtimeTick{call: call} }

func (t *runtimeTick) start() {
	if t.timer == nil {
		t.timer = time.AfterFunc(tickTime, t.call)
		return
	}
	t.timer.Reset(tickTime)
}

func (t *runtimeTick) end() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// SPDX-License-Identifier: MIT OR Apache-2.0

// Package clock has timers of 1 ms. All of a process share one timer of the kernel, on which one
// goroutine waits (decision 0044).
//
//	first timer made ──▶ descriptor and goroutine ──▶ last timer ended: both are gone
//	Start ──▶ first … last ──▶ called, in this order
//
// Timers of the Go runtime would be simpler. But with one pending, each sleep of a thread that
// waits for the network has a timeout, and the kernel needs longer to set and cancel a timeout than
// to carry a message.
package clock

import (
	"os"
	"sync"
	"syscall"
	"time"

	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/sys"
)

// A Tick is a timer that calls a function once, after [TickTime].
type Tick interface {
	// Start starts the timer, which must not run at this time.
	Start()
	// End stops the timer for ever. A call of the function that has begun is not interrupted.
	End()
}

// TickTime is the time of every timer of this package.
const TickTime = time.Millisecond

// NewTick returns a timer that calls the function call. If the kernel's timer is not available, the
// Go runtime runs the new timer.
func NewTick(call func()) Tick {
	if t := process.newTick(call); t != nil {
		return t
	}
	return NewRuntimeTick(call)
}

// A Pulse makes sure that a timer of this process runs. Its own timer calls nothing.
type Pulse struct{ tick *clockTick }

// NewPulse returns a pulse whose timer does not run yet. The result is nil if the kernel's timer is
// not available.
func NewPulse() *Pulse {
	if t := process.newTick(func() {}); t != nil {
		return &Pulse{t}
	}
	return nil
}

// Start starts the timer of the pulse, unless a timer of this process runs.
func (p *Pulse) Start() { p.tick.startAlone() }

// End ends the timer of the pulse for ever.
func (p *Pulse) End() { p.tick.End() }

// A clock has the timers of a process.
type clock struct {
	mu          sync.Mutex
	ticks       int // that have not ended
	timer       *sys.Timerfd
	file        *os.File   // owns the descriptor of the timer; nil while there is no tick
	first, last *clockTick // that run; each waits for the same time, so the first is due first
}

var process clock

// A clockTick is one timer of 1 ms of the clock. The lock of the clock guards its fields.
type clockTick struct {
	clock      *clock
	call       func()
	due        time.Time
	isRunning  bool
	isEnded    bool
	next, prev *clockTick
}

// newTick returns a timer that calls the function call, or nil if the kernel's timer is not
// available.
func (c *clock) newTick(call func()) *clockTick {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil && !c.open() {
		return nil
	}
	c.ticks++
	return &clockTick{clock: c, call: call}
}

// open makes the kernel's timer, and starts the goroutine that waits for it. The result is false if
// this process has no descriptor left, the system has no such timer, or Go's poller cannot wait for
// it.
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

// wait waits for the kernel's timer. Whenever that has fired, wait calls the functions of all
// timers of the clock that are due. It returns when the read deadline of file, the descriptor of
// the kernel's timer, has passed. Then it closes file itself: another goroutine could close it
// while this one still waits for it.
func (c *clock) wait(file *os.File, raw syscall.RawConn) {
	_ = raw.Read(func(uintptr) bool {
		for call := c.takeDue(); call != nil; call = c.takeDue() {
			call()
		}
		return false
	})
	_ = file.Close()
}

// takeDue removes the timer of the clock that has run longest if it is due, and returns its
// function. If it is not due yet, takeDue sets the kernel's timer to the time at which it is, and
// returns nil.
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

func (t *clockTick) Start() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.start()
}

// startAlone starts the timer, unless a timer of the clock runs.
func (t *clockTick) startAlone() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	if t.clock.first == nil || fault.Is("second_pulse") {
		t.start()
	}
}

func (t *clockTick) start() {
	c := t.clock
	if t.isEnded || t.isRunning {
		return
	}
	t.due, t.isRunning, t.prev = time.Now().Add(TickTime), true, c.last
	if c.last == nil {
		c.first = t
		c.timer.Set(TickTime)
	} else {
		c.last.next = t
	}
	c.last = t
}

func (t *clockTick) End() {
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
		// The error is ignored: the timer's descriptor is open, and Go's poller watches it, so its
		// deadline can be set.
		_ = c.file.SetReadDeadline(time.Unix(1, 0))
		c.timer, c.file = nil, nil
	}
}

// A runtimeTick is a timer of 1 ms that the Go runtime runs. Its first start makes the timer.
type runtimeTick struct {
	call  func()
	timer *time.Timer
}

// NewRuntimeTick returns a timer of 1 ms whose function the Go runtime calls, in a goroutine of its
// own.
func NewRuntimeTick(call func()) Tick { return &runtimeTick{call: call} }

func (t *runtimeTick) Start() {
	if t.timer == nil {
		t.timer = time.AfterFunc(TickTime, t.call)
		return
	}
	t.timer.Reset(TickTime)
}

func (t *runtimeTick) End() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

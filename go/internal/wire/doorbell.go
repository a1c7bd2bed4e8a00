// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/sys"
	"partywall.test/go/internal/wait"
)

// doorbell is the eventfd on which a goroutine of this process sleeps. One goroutine waits at a
// time, and any goroutine may wake it.
//
//	the peer, another process   eventfd ──▶ poller of Go ──▶ the waiter looks
//	goroutine of this process   interrupt ──▶ the waiter returns errInterrupted, and looks again
//
// The eventfd is never read, because the poller of Go reacts to edges (SPEC 6.2), and reading the
// eventfd would cause another edge.
type doorbell struct {
	descriptor int // belongs to file
	file       *os.File
	raw        syscall.RawConn
	isWaiting  atomic.Bool
	limit      instant // at which a wait fails
	sleeps     wait.ShortSleeps

	mutex         sync.Mutex // guards the fields below, and the deadline of file
	isInterrupted bool       // the deadline of file is in the past, rather than deadline
	deadline      time.Time  // limit, with the monotonic clock if the caller gave it
}

func newDoorbell() (*doorbell, error) {
	eventfd, err := sys.NewEventfd()
	if err != nil {
		return nil, err
	}
	d := &doorbell{descriptor: eventfd.Descriptor()}
	d.file = os.NewFile(uintptr(d.descriptor), "doorbell")
	if d.raw, err = d.file.SyscallConn(); err != nil {
		_ = d.file.Close()
		return nil, err
	}
	return d, nil
}

// wait calls look at once, and after each notification of the doorbell, until look returns true.
// The error is errInterrupted after a call of interrupt, which may have come before this wait. Any
// other error means that the limit has passed, or that the doorbell is closed.
func (d *doorbell) wait(look func(uintptr) bool) error {
	d.isWaiting.Store(true)
	err := d.raw.Read(look)
	d.isWaiting.Store(false)
	if errors.Is(err, os.ErrDeadlineExceeded) && d.endInterrupt() {
		return errInterrupted
	}
	return err
}

// endInterrupt ends the effect of earlier calls of interrupt. It returns false if there were none.
func (d *doorbell) endInterrupt() bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	wasInterrupted := d.isInterrupted && !fault.Is("interrupt_kept")
	if wasInterrupted {
		d.isInterrupted = false
		// The error is ignored: on a closed doorbell, the next wait returns an error.
		_ = d.file.SetReadDeadline(d.deadline)
	}
	return wasInterrupted
}

var errInterrupted = errors.New("interrupted")

// wake makes the goroutine that waits on the doorbell look again. A goroutine that only begins to
// wait at this time looks anyway.
func (d *doorbell) wake() {
	if d.isWaiting.Load() {
		// The error is ignored: on a closed doorbell nobody waits. The file's own Write is not
		// used, because it would block while the eventfd's count is full, which a trusted peer can
		// bring about.
		_ = d.raw.Control(notifyEdge)
	}
}

// interrupt makes the goroutine that waits on the doorbell return errInterrupted, without a system
// call, by setting a deadline in the past. A goroutine that only begins to wait at this time may
// not be interrupted, but looks once.
func (d *doorbell) interrupt() {
	if !d.isWaiting.Load() {
		return
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.isInterrupted = true
	// The error is ignored: on a closed doorbell nobody waits.
	_ = d.file.SetReadDeadline(time.Unix(1, 0))
}

// setLimit sets the time at which a wait on the doorbell fails, even one that is under way. The
// zero time means never.
func (d *doorbell) setLimit(t time.Time) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.limit.set(t)
	d.deadline = t
	if d.isInterrupted {
		return nil // the waiter has yet to notice that, and then sets this deadline
	}
	if err := d.file.SetReadDeadline(t); err != nil {
		return fmt.Errorf("setting a deadline: %w", ErrClosed)
	}
	return nil
}

func (d *doorbell) close() {
	_ = d.file.Close()
	d.sleeps.Close()
}

// notifyEdge notifies the eventfd with the given descriptor. The error is ignored, because an
// eventfd causes none.
func notifyEdge(descriptor uintptr) { _ = sys.NotifyEdge(int(descriptor)) }

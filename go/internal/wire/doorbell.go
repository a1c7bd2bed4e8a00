// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"partywall.test/go/internal/sys"
)

// doorbell is the eventfd on which a goroutine of this process sleeps. One goroutine waits at a
// time; any may wake it.
//
// It is never read, because its waiter reacts to edges (SPEC 6.2), and a read would cause another
// edge.
type doorbell struct {
	descriptor int // belongs to file
	file       *os.File
	raw        syscall.RawConn
	isWaiting  atomic.Bool
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

// wait calls look at first and after each notification, until look returns true. The error is that
// of a deadline that has passed, or of a doorbell that is closed.
func (d *doorbell) wait(look func(uintptr) bool) error {
	d.isWaiting.Store(true)
	err := d.raw.Read(look)
	d.isWaiting.Store(false)
	return err
}

// wake makes the waiter call look again. A goroutine that begins to wait at this time calls look
// anyway.
func (d *doorbell) wake() {
	if d.isWaiting.Load() {
		// The error is ignored: a closed doorbell has no waiter. A write to the file would wait
		// while the count is full, which a trusted peer can bring about.
		_ = d.raw.Control(notifyEdge)
	}
}

// interrupt makes the waiter return with an error, by a deadline that has passed. It remains until
// setDeadline. A goroutine that begins to wait at this time calls look anyway.
func (d *doorbell) interrupt() {
	if d.isWaiting.Load() {
		// The error is ignored: a closed doorbell has no waiter.
		_ = d.file.SetReadDeadline(time.Unix(1, 0))
	}
}

// setDeadline sets the time at which wait fails; the zero time means never.
func (d *doorbell) setDeadline(t time.Time) error { return d.file.SetReadDeadline(t) }

func (d *doorbell) close() { _ = d.file.Close() }

// notifyEdge notifies the eventfd with the given descriptor. It cannot fail on an eventfd.
func notifyEdge(descriptor uintptr) { _ = sys.NotifyEdge(int(descriptor)) }

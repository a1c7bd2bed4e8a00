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
// time, and any goroutine may wake it.
//
// The eventfd is never read, because the poller of Go reacts to edges (SPEC 6.2), and reading the
// eventfd would cause another edge.
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

// wait calls look at once, and after each notification of the doorbell, until look returns true. An
// error means that the deadline has passed, or that the doorbell is closed.
func (d *doorbell) wait(look func(uintptr) bool) error {
	d.isWaiting.Store(true)
	err := d.raw.Read(look)
	d.isWaiting.Store(false)
	return err
}

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

// interrupt makes the goroutine that waits on the doorbell return with an error, by setting a
// deadline in the past. This deadline remains until setDeadline sets another. A goroutine that only
// begins to wait at this time may not be interrupted, but looks once.
func (d *doorbell) interrupt() {
	if d.isWaiting.Load() {
		// The error is ignored: on a closed doorbell nobody waits.
		_ = d.file.SetReadDeadline(time.Unix(1, 0))
	}
}

// setDeadline sets the time at which a wait on the doorbell fails. The zero time means never.
func (d *doorbell) setDeadline(t time.Time) error { return d.file.SetReadDeadline(t) }

func (d *doorbell) close() { _ = d.file.Close() }

// notifyEdge notifies the eventfd with the given descriptor. The error is ignored, because an
// eventfd causes none.
func notifyEdge(descriptor uintptr) { _ = sys.NotifyEdge(int(descriptor)) }

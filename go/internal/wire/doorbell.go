// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"encoding/binary"
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
		// The error is ignored: a notification is pending already, or no goroutine waits any more.
		_, _ = d.file.Write(notification[:])
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

// notification is the number 1 as bytes, which a notification writes to an eventfd (SPEC 6.6).
var notification = func() (b [8]byte) {
	binary.NativeEndian.PutUint64(b[:], 1)
	return b
}()

// SPDX-License-Identifier: MIT OR Apache-2.0

package sys

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Eventfd is a doorbell: one process notifies, and another waits until the descriptor is readable.
//
// The descriptor is non-blocking. A waiter that reacts to edges (EPOLLET) never reads the eventfd
// (SPEC 6.2).
type Eventfd struct {
	descriptor int
}

// NewEventfd makes an eventfd whose count is 0.
func NewEventfd() (*Eventfd, error) {
	descriptor, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return &Eventfd{descriptor: descriptor}, nil
}

// EventfdOf takes over an eventfd that came from the peer. If the descriptor is no eventfd, Notify
// fails or has no effect, which harms only the peer.
func EventfdOf(descriptor int) *Eventfd { return &Eventfd{descriptor: descriptor} }

// Descriptor returns the descriptor of the eventfd, which stays open until [Eventfd.Close].
func (e *Eventfd) Descriptor() int { return e.descriptor }

// Notify wakes the process that waits on the eventfd. It never blocks: if the count of the eventfd
// is full, a notification is pending already.
//
// A peer could make the descriptor blocking, so only the eventfd of a trusted peer is used (SPEC
// 2.8).
func (e *Eventfd) Notify() error {
	err := e.notify()
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	return err
}

// notify adds 1 to the eventfd's count. The error is EAGAIN if the count is full.
//
// It does not tell the Go runtime of the system call, which never blocks. While all processors are
// idle, the runtime's monitor sleeps; a system call that the runtime knows of wakes the monitor,
// which then sets timers of its own, and costs more than the notification (decision 0054).
func (e *Eventfd) notify() error {
	one := uint64(1)
	for {
		// SAFETY: the kernel reads the 8 bytes of one, which lives until the call returns.
		_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(e.descriptor),
			uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// NotifyEdge wakes a waiter in this process that reacts to edges and never reads the eventfd. A
// peer that holds the eventfd can fill its count, after which a notification would make no edge. So
// in that case NotifyEdge reads the count first, which empties it. An error means that the
// descriptor is no eventfd.
func NotifyEdge(descriptor int) error {
	e := Eventfd{descriptor: descriptor}
	for {
		err := e.notify()
		if !errors.Is(err, unix.EAGAIN) {
			return err
		}
		if _, err := e.Drain(); err != nil {
			return err
		}
	}
}

// CheckEventfd returns an error unless a descriptor of the peer can serve as a doorbell: an eventfd
// that does not block and is no semaphore (SPEC 2.2). If the descriptor is anything else, the error
// wraps [ErrNotEventfd].
func CheckEventfd(descriptor int) error {
	text, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(descriptor))
	if err != nil {
		return err
	}
	isEventfd := false
	for line := range strings.Lines(string(text)) {
		if kind, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			isEventfd = isEventfd || kind == "eventfd-count"
			if kind == "eventfd-semaphore" && strings.TrimSpace(value) == "1" {
				return fmt.Errorf("%w: it is a semaphore", ErrNotEventfd)
			}
		}
	}
	if !isEventfd {
		return ErrNotEventfd
	}
	flags, err := unix.FcntlInt(uintptr(descriptor), unix.F_GETFL, 0)
	if err != nil {
		return fmt.Errorf("F_GETFL: %w", err)
	}
	if flags&unix.O_NONBLOCK == 0 {
		return fmt.Errorf("%w: it blocks", ErrNotEventfd)
	}
	return nil
}

// Drain takes all pending notifications from the eventfd, and reports whether there was any.
func (e *Eventfd) Drain() (bool, error) {
	var count [8]byte
	err := retry(func() error {
		_, err := unix.Read(e.descriptor, count[:])
		return err
	})
	if errors.Is(err, unix.EAGAIN) {
		return false, nil
	}
	return err == nil, err
}

// Close closes the descriptor of the eventfd.
func (e *Eventfd) Close() {
	if e.descriptor >= 0 {
		closeDescriptor(e.descriptor)
		e.descriptor = -1
	}
}

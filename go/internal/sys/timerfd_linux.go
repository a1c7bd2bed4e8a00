// SPDX-License-Identifier: MIT OR Apache-2.0

package sys

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Timerfd is a timer of the kernel: its descriptor is readable once its time has passed.
//
// The descriptor is non-blocking. A waiter that reacts to edges (EPOLLET) never reads it, because
// every expiry of the timer is an edge of its own.
type Timerfd struct {
	descriptor int
}

// NewTimerfd makes a timer of the kernel that is not running.
func NewTimerfd() (*Timerfd, error) {
	descriptor, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	return &Timerfd{descriptor: descriptor}, nil
}

// Descriptor returns the descriptor of the timer. The caller owns and closes the descriptor.
func (t *Timerfd) Descriptor() int { return t.descriptor }

// Set starts the timer: its descriptor becomes readable once, after the time after. A time that was
// set before is forgotten. The time must not be zero, which would stop the timer.
func (t *Timerfd) Set(after time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(after, 1)))}
	// The error is ignored: the call cannot fail, because the descriptor is that of a timer and the
	// time is valid.
	_ = unix.TimerfdSettime(t.descriptor, 0, &spec, nil)
}

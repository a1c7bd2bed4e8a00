// SPDX-License-Identifier: MIT OR Apache-2.0

package sys

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Timerfd is a timer of the kernel: its descriptor is readable once its time has passed.
//
// The descriptor is non-blocking. A waiter that reacts to edges never reads it: each time that
// passes is another edge.
type Timerfd struct {
	descriptor int
}

// NewTimerfd makes a timer that is not set.
func NewTimerfd() (*Timerfd, error) {
	descriptor, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	return &Timerfd{descriptor: descriptor}, nil
}

// Descriptor returns the descriptor of the timer, which belongs to the caller.
func (t *Timerfd) Descriptor() int { return t.descriptor }

// Set sets the time from now until the descriptor becomes readable, once; a time that was set
// before is forgotten. The time is longer than nothing, which would unset the timer.
func (t *Timerfd) Set(after time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(after, 1)))}
	// It cannot fail: the descriptor is a timer, and the time valid.
	_ = unix.TimerfdSettime(t.descriptor, 0, &spec, nil)
}

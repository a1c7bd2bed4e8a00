// SPDX-License-Identifier: MIT OR Apache-2.0

package sys

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Pidfd refers to one process for ever. A pid does not, because the kernel reuses pids.
type Pidfd struct {
	descriptor int
}

// OpenPidfd returns a pidfd of process pid.
func OpenPidfd(pid int) (*Pidfd, error) {
	descriptor, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("pidfd_open of process %d: %w", pid, err)
	}
	return &Pidfd{descriptor: descriptor}, nil
}

// PidfdOf takes over a descriptor that came from the peer. Only [Pidfd.PID] checks whether the
// descriptor is a pidfd.
func PidfdOf(descriptor int) *Pidfd { return &Pidfd{descriptor: descriptor} }

// Descriptor returns the descriptor of the pidfd, which stays open until [Pidfd.Close]. It is
// readable once the process has ended.
func (p *Pidfd) Descriptor() int { return p.descriptor }

// PID returns the pid of the process in this process's namespace. It is 0 if the process is not
// visible there, and -1 if it has ended and was waited for. The error is [ErrNotPidfd] if the
// descriptor is no pidfd.
func (p *Pidfd) PID() (int, error) {
	path := "/proc/self/fdinfo/" + strconv.Itoa(p.descriptor)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if number, ok := strings.CutPrefix(line, "Pid:"); ok {
			return strconv.Atoi(strings.TrimSpace(number))
		}
	}
	return 0, ErrNotPidfd
}

// IsEnded reports whether the process has ended. It does not wait.
func (p *Pidfd) IsEnded() (bool, error) {
	poll := []unix.PollFd{{Fd: int32(p.descriptor), Events: unix.POLLIN}}
	var ready int
	err := retry(func() (err error) {
		ready, err = unix.Poll(poll, 0)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("poll of a pidfd: %w", err)
	}
	if poll[0].Revents&unix.POLLNVAL != 0 {
		return false, errors.New("poll of a pidfd: the descriptor is closed")
	}
	return ready > 0, nil
}

// Close closes the descriptor of the pidfd.
func (p *Pidfd) Close() {
	if p.descriptor >= 0 {
		closeDescriptor(p.descriptor)
		p.descriptor = -1
	}
}

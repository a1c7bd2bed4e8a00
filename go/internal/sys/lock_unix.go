// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build unix

package sys

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// LockDirectory locks a directory, so that no other process replaces a socket file in it while the
// lock is held (SPEC 2.1). Closing the file ends the lock. The error is [ErrWouldBlock] if another
// process holds the lock.
func LockDirectory(path string) (*os.File, error) {
	directory, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	err = retryLock(int(directory.Fd()))
	if err == nil {
		return directory, nil
	}
	_ = directory.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, ErrWouldBlock
	}
	return nil, os.NewSyscallError("flock", err)
}

func retryLock(descriptor int) error {
	for {
		err := unix.Flock(descriptor, unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

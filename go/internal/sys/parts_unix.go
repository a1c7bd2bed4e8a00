// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build unix

package sys

import (
	"errors"

	"golang.org/x/sys/unix"
)

// SendParts sends what the socket takes of the concatenation of parts, without waiting, and returns
// how many bytes that is. The error is [ErrWouldBlock] if it takes nothing now, and [ErrHungUp] if
// the peer is gone.
func SendParts(socket int, parts ...[]byte) (int, error) {
	for {
		var sent int
		var err error
		if len(parts) == 1 {
			// This call allocates nothing.
			sent, err = unix.SendmsgN(socket, parts[0], nil, nil, unix.MSG_DONTWAIT)
		} else {
			sent, err = unix.SendmsgBuffers(socket, parts, nil, nil, unix.MSG_DONTWAIT)
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return sent, explainParts(err)
	}
}

// ReadNow reads what is there, without waiting. The error is [ErrWouldBlock] if there is nothing
// now, and [ErrHungUp] after the last byte.
func ReadNow(socket int, into []byte) (int, error) {
	for {
		n, _, err := unix.Recvfrom(socket, into, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err == nil && n == 0:
			return 0, ErrHungUp
		case err != nil:
			return 0, explainParts(err)
		}
		return n, nil
	}
}

func explainParts(err error) error {
	switch {
	case errors.Is(err, unix.EAGAIN):
		return ErrWouldBlock
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		return ErrHungUp
	}
	return err
}

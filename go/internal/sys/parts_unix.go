// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build unix

package sys

import (
	"errors"

	"golang.org/x/sys/unix"
)

// SendParts sends as much of the concatenation of parts as the socket takes, without waiting. It
// returns the number of bytes sent. The error is [ErrWouldBlock] if the socket takes nothing now,
// and [ErrHungUp] if the peer is gone.
func SendParts(socket int, parts ...[]byte) (int, error) {
	for {
		var sent int
		var err error
		if len(parts) == 1 {
			// SendmsgN is used because it allocates nothing.
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

// ReadNow reads the bytes that have come, without waiting. The error is [ErrWouldBlock] if none
// have come, and [ErrHungUp] after the last byte.
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

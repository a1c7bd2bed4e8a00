// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"net"
	"os"

	"partywall.test/go/internal/handshake"
	"partywall.test/go/internal/layout"
)

// Errors of [Sender] and [Receiver]. The other errors of a Sender or Receiver wrap a
// layout.Violation, or are [os.ErrDeadlineExceeded].
var (
	// ErrFull reports that there is no room for a message or record now. The caller waits for room
	// and repeats the attempt.
	ErrFull = errors.New("there is no room for the message now")
	// ErrDisconnected reports that the peer has died or hung up without closing the connection.
	ErrDisconnected = errors.New("the peer has died or hung up")
	// ErrClosed reports that this side has closed the connection.
	ErrClosed = fmt.Errorf("closed by this process: %w", net.ErrClosed)
)

// TooLongError reports a message that is too long for the connection, even when all memory is free.
type TooLongError struct {
	Size, Max uint64 // in bytes
}

// Error returns the length of the message that is too long, the longest allowed length, and what
// sets this limit.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("a message of %d bytes exceeds %d, the smaller of what this side has as "+
		"memory and what the peer receives: raise Config.MemoryMax on both sides, or "+
		"Config.MessageMax of the peer", e.Size, e.Max)
}

// SystemError reports the failure of a system call that normally does not fail.
type SystemError struct{ Err error }

// Error returns the text of the system call's error.
func (e *SystemError) Error() string { return "partywall: " + e.Err.Error() }

// Unwrap returns the error of the system call.
func (e *SystemError) Unwrap() error { return e.Err }

// Failure is an error of an address, of listening or of connecting, with its number of SPEC 17.
type Failure struct {
	Number layout.ErrorNumber
	Text   string // what to do, if Err does not say enough
	Err    error
}

// Error returns the text of the failure, with its cause.
func (f *Failure) Error() string {
	switch {
	case f.Text != "" && f.Err != nil:
		return f.Text + ": " + f.Err.Error()
	case f.Text != "":
		return f.Text
	}
	text := f.Number.String()
	if f.Err != nil {
		text += ": " + f.Err.Error()
	}
	if advice := advices[f.Number]; advice != "" {
		text += ": " + advice
	}
	return text
}

// advices are sentences that say what to do about a failure. They are added to failures whose text
// otherwise comes from the operating system.
var advices = map[layout.ErrorNumber]string{
	layout.ErrorAddressUnresolved:  "check the name, or write the IP address",
	layout.ErrorDescriptorLimit:    "raise RLIMIT_NOFILE",
	layout.ErrorAddressInUse:       "stop the process that listens there, or choose another address",
	layout.ErrorDirectoryLocked:    "remove the socket file by hand",
	layout.ErrorListeningDenied:    "check the directory, or use a port from 1024 up",
	layout.ErrorNoDirectory:        "create it first",
	layout.ErrorConnectingTimedOut: "the server is overloaded, stopped or unreachable",
	layout.ErrorNoSocket:           "is the server running, and is the path the same on both sides?",
	layout.ErrorNoListener:         "start the server",
	layout.ErrorConnectingToAFile:  "it is a file and no socket, is the path right?",
	layout.ErrorConnectingDenied:   "let the socket file and its directories admit this user",
}

// Unwrap returns the cause of the failure.
func (f *Failure) Unwrap() error { return f.Err }

// Number returns the number that identifies err, an error of this package, in every language (SPEC
// 17).
func Number(err error) layout.ErrorNumber {
	var violation layout.Violation
	var tooLong *TooLongError
	var failure *Failure
	var refused *handshake.Error
	switch {
	case errors.As(err, &failure):
		return failure.Number
	case errors.As(err, &refused):
		return refused.Number
	case errors.As(err, &violation):
		return violation.ErrorNumber()
	case errors.As(err, &tooLong):
		return layout.ErrorMessageTooLong
	case errors.Is(err, ErrFull):
		return layout.ErrorFull
	case errors.Is(err, ErrDisconnected):
		return layout.ErrorDisconnected
	case errors.Is(err, os.ErrDeadlineExceeded):
		return layout.ErrorTimedOut
	case errors.Is(err, ErrClosed):
		return layout.ErrorSessionClosedHere
	}
	return layout.ErrorSystem
}

// ErrTimedOut reports that the deadline has passed before anything was sent or received.
var ErrTimedOut = os.ErrDeadlineExceeded

// waitError converts the error of waiting on a doorbell or a socket to an error of this package.
func waitError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrTimedOut
	case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrClosed):
		return ErrClosed
	}
	return &SystemError{err}
}

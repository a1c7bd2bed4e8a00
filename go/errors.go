// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"

	"partywall.test/go/internal/handshake"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/session"
	"partywall.test/go/internal/wire"
)

// ErrFull is the error of methods named Try, and of Send with [BackPressureError], while there is
// no room for a message.
var ErrFull = wire.ErrFull

// ErrEmpty is the error of methods named Try while there is no message to receive.
var ErrEmpty = errors.New("there is no message now")

// An ErrorCode identifies an error in every language. Codes are stable (SPEC 17).
type ErrorCode uint32

// String returns the name of the code, or its number if this version does not know it.
func (c ErrorCode) String() string { return layout.ErrorNumber(c).String() }

// An Error is any error of this package except [io.EOF] and the errors of a context.
//
//	errors.Is(err, os.ErrDeadlineExceeded)  the deadline has passed; nothing was done
//	errors.Is(err, net.ErrClosed)           this side has closed what it uses
//	errors.Is(err, syscall.EPIPE)           the peer has died or hung up, or receives no more, or
//	                                        CloseWrite has ended the sending of this side
//	errors.Is(err, syscall.ECONNRESET)      of a stream: its bytes ended without a good end
//	errors.Is(err, ErrFull), ErrEmpty       there is no room, or no message, now
//
// It is a [net.Error].
type Error struct {
	// Op is the operation that failed: "parse" for an address, "dial", "listen", "accept", "send",
	// "recv", "reserve", "set" for a deadline, or "close". Operations of sessions and streams are
	// also "open", "ping", "wait", "read", "write" and "session".
	Op  string
	err error
}

var _ net.Error = (*Error)(nil)

// Error returns the operation that failed, and the reason.
func (e *Error) Error() string { return "partywall: " + e.Op + ": " + e.err.Error() }

// Unwrap returns the error that made the operation fail.
func (e *Error) Unwrap() error { return e.err }

// ErrorCode returns the code that identifies the error in every language (SPEC 17).
func (e *Error) ErrorCode() ErrorCode {
	if errors.Is(e.err, ErrEmpty) {
		return ErrorCode(layout.ErrorEmpty)
	}
	var ended *session.Error
	switch {
	case errors.As(e.err, &ended):
		return ErrorCode(ended.Number)
	case errors.Is(e.err, net.ErrClosed):
		return ErrorCode(layout.ErrorSessionClosedHere)
	}
	return ErrorCode(wire.Number(e.err))
}

// RejectCode returns the code with which the peer refused the connection. The second result is
// false if the error is not a refusal by the peer (SPEC 2.5).
func (e *Error) RejectCode() (uint32, bool) {
	var refused *handshake.Error
	if errors.As(e.err, &refused) && refused.Number == layout.ErrorRefusedByThePeer {
		return uint32(refused.Code), true
	}
	return 0, false
}

// ApplicationCode returns the code that the application on either side gave when it reset or
// stopped the stream, closed the session, or let the session take no more streams. The second
// result is false for any other error.
func (e *Error) ApplicationCode() (uint32, bool) {
	var ended *session.Error
	if !errors.As(e.err, &ended) {
		return 0, false
	}
	switch ended.Number {
	case layout.ErrorStreamReset, layout.ErrorStreamStopped, layout.ErrorGoingAway,
		layout.ErrorSessionClosedByThePeer, layout.ErrorSessionClosedHere:
		return ended.Code, true
	}
	return 0, false
}

// Reason returns the text for operators that the peer sent when it closed the session. The text may
// hold any bytes.
func (e *Error) Reason() string {
	var ended *session.Error
	if errors.As(e.err, &ended) {
		return ended.Reason
	}
	return ""
}

// FallbackReason returns why memory could not be shared, if the connection failed because the sides
// have no common transport.
func (e *Error) FallbackReason() FallbackReason {
	var refused *handshake.Error
	if errors.As(e.err, &refused) {
		return FallbackReason(refused.Reason)
	}
	return 0
}

// Timeout reports whether the operation failed because a deadline has passed.
func (e *Error) Timeout() bool {
	switch layout.ErrorNumber(e.ErrorCode()) {
	case layout.ErrorTimedOut, layout.ErrorHandshakeTimedOut, layout.ErrorConnectingTimedOut:
		return true
	}
	return false
}

// Temporary reports whether the operation may succeed later, which is so if only a deadline has
// passed.
func (e *Error) Temporary() bool { return e.Timeout() }

// Is makes [errors.Is] find the errors that the comment of [Error] lists, and syscall.EMSGSIZE for
// a message that is too long.
func (e *Error) Is(target error) bool {
	switch target {
	case os.ErrDeadlineExceeded:
		return e.Timeout()
	case net.ErrClosed:
		return e.isOneOf(layout.ErrorSessionClosedHere, layout.ErrorStreamStoppedHere)
	case syscall.EPIPE:
		return e.isOneOf(layout.ErrorDisconnected, layout.ErrorStreamStopped,
			layout.ErrorStreamFinishedHere)
	case syscall.ECONNRESET:
		var ended *session.Error
		return errors.As(e.err, &ended) && e.isOneOf(layout.ErrorDisconnected, layout.ErrorFinished,
			layout.ErrorStreamReset, layout.ErrorSessionClosedByThePeer)
	case syscall.EMSGSIZE:
		return layout.ErrorNumber(e.ErrorCode()) == layout.ErrorMessageTooLong
	}
	return false
}

func (e *Error) isOneOf(numbers ...layout.ErrorNumber) bool {
	return slices.Contains(numbers, layout.ErrorNumber(e.ErrorCode()))
}

// ViolationCode returns the number of the rule that the peer broke (SPEC 9.3). The second result is
// false if the peer broke none.
func (e *Error) ViolationCode() (uint8, bool) {
	var violation layout.Violation
	if errors.As(e.err, &violation) {
		return uint8(violation), true
	}
	var refused *handshake.Error
	if errors.As(e.err, &refused) && refused.Number == layout.ErrorHandshakeViolation {
		return uint8(refused.Violation), true
	}
	return 0, false
}

// wrap returns err as an [*Error] that names the failed operation op. It returns nil, io.EOF and
// the errors of a context unchanged.
func wrap(op string, err error) error {
	switch {
	case err == nil, err == io.EOF, err == context.Canceled, err == context.DeadlineExceeded:
		return err
	}
	return &Error{Op: op, err: err}
}

// shortBuffer returns the error of receiving a message of size bytes into a buffer of only room
// bytes.
func shortBuffer(size, room int) error {
	return fmt.Errorf("%w: the message has %d bytes, the buffer %d", io.ErrShortBuffer, size, room)
}

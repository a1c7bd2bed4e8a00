// SPDX-License-Identifier: MIT OR Apache-2.0

package calls

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	partywall "partywall.test/go"
	"partywall.test/go/internal/layout"
)

// Reasons why a call has no answer, for [errors.Is].
var (
	// ErrBusy: too many calls wait at the server, and it did not begin the call. The client may try
	// again later.
	ErrBusy = errors.New("the server is busy: try again later, or raise its Config.WaitingMax")
	// ErrAborted: the server gave the call up. Its handler panicked or returned an error that is no
	// [*Failure], or its answer was too long to send.
	ErrAborted = errors.New("the server aborted the call: see its log")
	// ErrLost: the stream or the session has ended. The handler may have done its work, or part of
	// it.
	ErrLost = errors.New("the stream or the session has ended")
)

// An Error is any error of this package except [context.Canceled].
//
//	errors.Is(err, context.DeadlineExceeded)  no answer came before the deadline
//	errors.Is(err, ErrBusy), ErrAborted       the server did not begin the call, or gave it up
//	errors.Is(err, ErrLost)                   no more calls can be made over the stream
//	errors.Is(err, net.ErrClosed)             this side has closed the client
//	errors.As(err, &failure)                  the handler returned this [*Failure]
//
// An error of the stream is wrapped as well: a [*partywall.Error], or [io.EOF] if the server has
// finished the stream in good order.
type Error struct {
	number layout.ErrorNumber
	text   string // what happened, unless err says it
	err    error
	isLost bool
}

// Error returns the reason why the call failed.
func (e *Error) Error() string {
	switch {
	case e.text == "":
		return "calls: " + e.err.Error()
	case e.err == nil:
		return "calls: " + e.text
	}
	return "calls: " + e.text + ": " + e.err.Error()
}

// Unwrap returns the error that made the call fail, or nil if there is no such error.
func (e *Error) Unwrap() error { return e.err }

// ErrorCode returns the code that identifies the error in every language (SPEC 17).
func (e *Error) ErrorCode() partywall.ErrorCode { return partywall.ErrorCode(e.number) }

// Timeout reports whether the call failed because its deadline has passed.
func (e *Error) Timeout() bool { return e.number == layout.ErrorTimedOut }

// Is makes [errors.Is] find [ErrLost] in an error, and [os.ErrDeadlineExceeded] if a deadline has
// passed.
func (e *Error) Is(target error) bool {
	return target == ErrLost && e.isLost || target == os.ErrDeadlineExceeded && e.Timeout()
}

// A Failure is the error with which a handler fails a call. The client gets it with the same code
// and detail.
type Failure struct {
	// Code is the number that identifies the failure. The application chooses it, less than
	// 0xffffff00.
	Code uint32
	// Detail is passed to the caller, and may be any bytes.
	Detail []byte
}

// Error returns a text with the code and the detail. A detail that is long or no text is replaced
// by its size.
func (f *Failure) Error() string {
	text := string(f.Detail)
	isHidden := func(r rune) bool { return !unicode.IsPrint(r) }
	if text != "" && len(text) <= detailMax && utf8.ValidString(text) &&
		!strings.ContainsFunc(text, isHidden) {
		return fmt.Sprintf("the call failed with code %d: %s", f.Code, text)
	}
	return fmt.Sprintf("the call failed with code %d (%d bytes of detail)", f.Code, len(f.Detail))
}

// detailMax is the size in bytes of the longest detail that [Failure.Error] includes in its text,
// which may go to a log.
const detailMax = 200

var errClosed = &Error{
	number: layout.ErrorSessionClosedHere, text: "the client is closed", err: net.ErrClosed,
	isLost: true,
}

// violation returns the error for a peer that broke a rule (CALLS 5).
func violation(number layout.ErrorNumber, format string, arguments ...any) *Error {
	return &Error{number: number, text: fmt.Sprintf(format, arguments...), isLost: true}
}

func isViolation(err error) bool {
	e, isError := err.(*Error)
	return isError && e.number >= layout.ErrorCallTooShort && e.number <= layout.ErrorCallUnknown
}

// lost returns the error of calls for which no answer can come, because the stream has ended with
// err.
func lost(err error) *Error {
	if err == io.EOF {
		return &Error{
			number: layout.ErrorFinished, text: "the server has finished the stream", err: err,
			isLost: true,
		}
	}
	e := &Error{number: layout.ErrorSystem, err: err, isLost: true}
	var of *partywall.Error
	if errors.As(err, &of) {
		e.number = layout.ErrorNumber(of.ErrorCode())
	}
	return e
}

func ended(ctx context.Context) error {
	if err := ctx.Err(); err != context.DeadlineExceeded {
		return err
	}
	return late()
}

// late returns the error of a call whose deadline has passed before its answer came.
func late() error {
	return &Error{
		number: layout.ErrorTimedOut, text: "no answer came before the deadline",
		err: context.DeadlineExceeded,
	}
}

// failed returns the error of a call to which the server answered with an ERROR frame of this code
// and detail.
func failed(code uint32, detail []byte) error {
	switch code {
	case codeBusy:
		return &Error{number: layout.ErrorCallRefused, err: ErrBusy}
	case codeDeadline:
		return late()
	case codeAborted:
		return &Error{number: layout.ErrorCallAborted, text: string(detail), err: ErrAborted}
	}
	failure := &Failure{Code: code, Detail: append([]byte(nil), detail...)}
	return &Error{number: layout.ErrorCallFailed, err: failure}
}

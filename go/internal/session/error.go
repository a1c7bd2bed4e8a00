// SPDX-License-Identifier: MIT OR Apache-2.0

package session

import (
	"errors"
	"fmt"

	"partywall.test/go/internal/layout"
)

// An Error says why a session or a stream is over, or why one of its operations fails.
type Error struct {
	Number layout.ErrorNumber // of SPEC 17
	Code   uint32             // the application's, where one of the two gave one
	Reason string             // for operators; of the peer, so it may hold any bytes
}

// The errors of operations on a session or stream that can succeed only after the peer has
// done something.
var (
	// ErrEmpty reports that no message has come on the stream, or that the peer has opened no
	// further stream.
	ErrEmpty = errors.New("nothing is there now")
	// ErrNoCredit reports that the peer must take messages of the stream before this side sends
	// more.
	ErrNoCredit = errors.New("the stream has no credit now")
	// ErrNoNumber reports that this side has as many streams open as the peer allows.
	ErrNoNumber = errors.New("the most streams that the peer allows are open")
)

// Error returns the error's name, and the code and the reason if there are any.
func (e *Error) Error() string {
	text := e.Number.String()
	switch {
	case e.Code == layout.ResetRefused:
		text += " (refused)"
	case e.Code == layout.ResetDropped:
		text += " (dropped)"
	case e.Code != 0 || e.Reason != "":
		text += fmt.Sprintf(" (code %#x)", e.Code)
	}
	if e.Reason != "" {
		text += fmt.Sprintf(": %q", e.Reason)
	}
	return text
}

// ErrorNumber returns the number of the error in SPEC 17.
func (e *Error) ErrorNumber() layout.ErrorNumber { return e.Number }

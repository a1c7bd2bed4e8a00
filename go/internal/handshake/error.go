// SPDX-License-Identifier: MIT OR Apache-2.0

package handshake

import (
	"errors"
	"fmt"

	"partywall.test/go/internal/layout"
)

// An Error says why a handshake failed (SPEC 17.3).
type Error struct {
	Number layout.ErrorNumber
	// Code is the code of the REJECT with which the peer refused the connection, if it did.
	Code layout.RejectCode
	// Reason says why memory cannot be shared, if the two sides have no transport in common.
	Reason layout.FallbackReason
	// Violation is the rule that the peer broke, if the handshake failed because of that.
	Violation layout.Violation
	// Asked is the service that the peer asked for, and Offered the service of this side, if the
	// two differ.
	Asked, Offered uint32
	// Text is additional text for operators; if the peer refused the connection, it is the text of
	// the peer's REJECT.
	Text string
	// Err is the error within this process that made the handshake fail, if there is one.
	Err error
}

// Error returns a sentence for operators that says why the handshake failed.
func (e *Error) Error() string { return "handshake: " + e.text() }

// text returns the sentence that says why the handshake failed. If this side refuses the
// connection, the peer gets the same sentence.
func (e *Error) text() string {
	text := e.describe()
	if e.Text != "" {
		text += ": " + e.Text
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *Error) describe() string {
	switch e.Number {
	case layout.ErrorRefusedByThePeer:
		return fmt.Sprintf("the peer refused the connection (%s)", e.Code)
	case layout.ErrorNoTransport:
		return fmt.Sprintf("no transport that both sides allow (%s): allow the socket, or remove "+
			"the reason", e.Reason)
	case layout.ErrorHandshakeViolation:
		return e.Violation.Error()
	case layout.ErrorService:
		return fmt.Sprintf("this listener offers %s, not %s",
			serviceName(e.Offered), serviceName(e.Asked))
	}
	return e.Number.String()
}

// serviceName returns the name of what a service carries, messages or streams, for the text of an
// error.
func serviceName(service uint32) string {
	switch service {
	case layout.ServiceChannel:
		return "channels"
	case layout.ServiceSession:
		return "sessions"
	case layout.ServiceLink:
		return "links"
	}
	return fmt.Sprintf("service %d", service)
}

// Unwrap returns the cause within this process, if there is one.
func (e *Error) Unwrap() error { return e.Err }

// reply returns the code of the REJECT with which this side tells the peer why the handshake
// failed. The result is 0 if this side sends no REJECT.
func (e *Error) reply() layout.RejectCode {
	switch e.Number {
	case layout.ErrorVersion:
		return layout.RejectVersion
	case layout.ErrorNotAdmitted:
		return layout.RejectAdmission
	case layout.ErrorNoTransport:
		return layout.RejectTransport
	case layout.ErrorHandshakeViolation, layout.ErrorDescriptor:
		return layout.RejectViolation
	case layout.ErrorService:
		return layout.RejectService
	case layout.ErrorHandshakeTimedOut:
		return layout.RejectBusy
	}
	return 0
}

// broken returns the error of a handshake in which the peer broke the rule that err names. If err
// names no rule, it is the rule for frames of the handshake.
func broken(err error) error {
	violation := layout.ViolationFrame
	errors.As(err, &violation)
	return &Error{Number: layout.ErrorHandshakeViolation, Violation: violation}
}

// Broken returns the error of a handshake in which an [Environment] found that the peer broke a
// rule.
func Broken(violation layout.Violation) error { return broken(violation) }

// BadDescriptor returns the error of a handshake in which the peer sent a descriptor of another
// kind than its frame lists.
func BadDescriptor(err error) error { return &Error{Number: layout.ErrorDescriptor, Err: err} }

// NotAdmitted returns the error of a handshake for a peer that the [Environment] does not admit.
func NotAdmitted(err error) error { return &Error{Number: layout.ErrorNotAdmitted, Err: err} }

func versionText(low, high uint16) string {
	return fmt.Sprintf("this side speaks %d to %d, the peer %d to %d",
		layout.ProtocolVersionMin, layout.ProtocolVersionMax, low, high)
}

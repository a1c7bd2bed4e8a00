// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

import "fmt"

// A Violation is the number of a rule that the peer broke (SPEC 9.3). It ends the connection.
type Violation uint8

// Error returns the number and the name of the rule that the peer broke.
func (v Violation) Error() string {
	return fmt.Sprintf("peer violated rule %d (%s)", uint8(v), name(violationNames, v))
}

// A Kind is the kind of a record (SPEC 4.3).
type Kind uint8

// String returns the kind's name, or its number if it has none.
func (k Kind) String() string { return name(kindNames, k) }

// A RejectCode says why a side refuses a connection (SPEC 2.5). A code that this version does not
// know is kept as its number.
type RejectCode uint32

// String returns the code's name, or its number if it has none.
func (c RejectCode) String() string { return name(rejectNames, c) }

// A FallbackReason says why a side does not use shared memory; 0 means that it has no reason (SPEC
// 2.6). A reason that this version does not know is kept as its number.
type FallbackReason uint32

// String returns the reason's name, or its number if it has none.
func (r FallbackReason) String() string { return name(reasonNames, r) }

// An ErrorNumber identifies an error in every language (SPEC 17).
type ErrorNumber uint32

// ErrorNumber returns the number of the error with which a program reports the violation (SPEC
// 17.2).
func (v Violation) ErrorNumber() ErrorNumber { return violationErrors + ErrorNumber(v) }

// String returns the error's name, or its number if it has none.
func (n ErrorNumber) String() string {
	if n > violationErrors && n <= violationErrors+violationMax {
		return "violation of rule " + name(violationNames, Violation(n-violationErrors))
	}
	return name(errorNames, n)
}

// The errors that report violations have the numbers from violationErrors to
// violationErrors+violationMax.
const (
	violationErrors = 100
	violationMax    = 99
)

func name[N ~uint8 | ~uint32](names map[N]string, number N) string {
	if text, ok := names[number]; ok {
		return text
	}
	return fmt.Sprint(uint32(number))
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

import "encoding/binary"

// An Assembly counts the bytes of a message that comes in fragments (SPEC 5.5). Its zero value has
// no unfinished message.
//
//	FIRST (total, bytes) → MID (bytes)* → LAST (bytes)     or, after FIRST, → ABORT
type Assembly struct {
	within     bool
	got, total uint64
}

// Progress returns how many bytes of the last message in fragments have come, and the total length
// of that message.
func (a *Assembly) Progress() (got, total uint64) { return a.got, a.total }

// IsWithin reports whether a message has begun of which fragments are missing.
func (a *Assembly) IsWithin() bool { return a.within }

// Add checks that a fragment may come now and that the lengths of the fragments fit the message's
// length, and counts the fragment's bytes. The caller has checked the payload by itself before.
func (a *Assembly) Add(kind Kind, payload []byte) error {
	if a.within == (kind == KindFragmentFirst) {
		return ViolationFragment
	}
	switch kind {
	case KindFragmentFirst:
		*a = Assembly{within: true, total: binary.LittleEndian.Uint64(payload)}
		payload = payload[FragmentPrefixBytes:]
	case KindFragmentAbort:
		a.within = false
		return nil
	}
	if uint64(len(payload)) > a.total-a.got {
		return ViolationFragment
	}
	a.got += uint64(len(payload))
	if kind == KindFragmentLast {
		a.within = false
		if a.got != a.total {
			return ViolationFragment
		}
	}
	return nil
}

// Drop forgets a message of which fragments are missing, because its sender has ended the
// direction.
func (a *Assembly) Drop() { a.within = false }

// checkFragment checks the payload of a fragment by itself, without regard to the fragments before
// it.
func checkFragment(kind Kind, payload []byte, messageMax uint64) error {
	switch kind {
	case KindFragmentFirst:
		if len(payload) < FragmentPrefixBytes {
			return ViolationBody
		}
		if binary.LittleEndian.Uint64(payload) > messageMax {
			return ViolationMessageLength
		}
	case KindFragmentAbort:
		return checkEmpty(payload)
	}
	return nil
}

// checkEmpty returns a violation if a record whose kind has no payload comes with one.
func checkEmpty(payload []byte) error {
	if len(payload) != 0 {
		return ViolationBody
	}
	return nil
}

func isFragment(kind Kind) bool { return kind >= KindFragmentFirst && kind <= KindFragmentAbort }

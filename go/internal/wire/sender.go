// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/ring"
)

// Sender writes the records of one direction. One goroutine uses it at a time, but any goroutine
// may call SetDeadline.
//
//	TryMessage, TryRecord, TryReserved ──▶ Commit     or, on ErrFull: Commit, WaitRoom, again
type Sender interface {
	// TryMessage appends a message. Over shared memory a long message goes in a block, whose BLOB
	// carries the credit if there is any. In other cases the caller sends CREDIT as a record.
	TryMessage(stream uint32, payload []byte, credit Credit) error
	// TryRecord appends a record, with a payload that is the concatenation of parts.
	TryRecord(kind layout.Kind, stream uint32, parts ...[]byte) error
	// RecordMax returns the longest payload of a record in bytes.
	RecordMax() uint64
	// CarriesCredit reports whether a message of n bytes goes as BLOB, which carries the credit.
	CarriesCredit(n int) bool

	// Reserve returns memory for a message of n bytes, or [ErrFull].
	Reserve(n uint64) (*Reservation, error)
	// TryReserved appends the first n bytes of a reservation as a message, and takes the
	// reservation over. On ErrFull the caller keeps it. The message carries the credit if its
	// memory is shared.
	TryReserved(r *Reservation, stream uint32, n uint64, credit Credit) error
	// Free frees a reservation that was not sent.
	Free(r *Reservation)

	// Commit makes what was appended visible to the peer. It does not wait.
	Commit() error
	// CommitAll is Commit, and waits until nothing of the caller's memory is needed any more. If
	// the deadline passes before anything was sent, the error is [ErrTimedOut].
	CommitAll() error
	// Close appends CLOSE_WRITE and commits. Nothing may follow.
	Close(stream uint32) error
	// WaitRoom waits until a call that returned ErrFull may succeed.
	WaitRoom() error
	// Room returns WaitRoom for the attempt that has just returned ErrFull, without its deadline,
	// for a goroutine that does not use the sender otherwise. The sender may be used meanwhile.
	Room() func() error
	// Unwritten returns a wait, as Room does, until everything that was committed has left this
	// process; or nil if it has. Close does not wait then.
	Unwritten() func() error
	// SetDeadline sets the time at which WaitRoom fails.
	SetDeadline(t time.Time) error
	// IsLate reports whether the deadline has passed.
	IsLate() bool
}

// A Credit is the field credited of a BLOB (SPEC 11.4).
type Credit struct {
	IsThere  bool
	Credited uint64
}

// IsShared reports whether the memory is the one that the peer reads.
func (r *Reservation) IsShared() bool { return r.memory != nil }

// A Reservation is memory for a message, which the caller writes before it is sent.
type Reservation struct {
	// Bytes is the memory, with the length that was reserved. It may hold old bytes of this
	// process.
	Bytes []byte
	block ring.Block
	// memory is the region in which the block lies; nil if the bytes are private memory.
	memory *mapping
}

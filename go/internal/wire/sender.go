// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/ring"
)

// Sender writes the records of one direction of a connection. One goroutine uses it at a time, but
// any goroutine may call SetDeadline.
//
//	TryMessage, TryRecord, TryReserved ──▶ Commit     or, on ErrFull: Commit, WaitRoom, again
type Sender interface {
	// TryMessage appends a message to the open batch. Over shared memory a long message goes in a
	// block, whose BLOB carries the credit if there is any. A short message, or one over a socket,
	// carries none, and the caller sends the credit in a record CREDIT.
	TryMessage(stream uint32, payload []byte, credit Credit) error
	// TryRecord appends a record to the open batch. Its payload is the concatenation of parts.
	TryRecord(kind layout.Kind, stream uint32, parts ...[]byte) error
	// RecordMax returns the longest payload of a record in bytes.
	RecordMax() uint64
	// CarriesCredit reports whether a message of n bytes goes in a block, whose BLOB can carry
	// credit.
	CarriesCredit(n int) bool

	// Reserve returns memory for a message of n bytes. The error is [ErrFull] if none is free now.
	Reserve(n uint64) (*Reservation, error)
	// TryReserved appends the first n bytes of a reservation as a message, and takes the
	// reservation over. If the error is ErrFull, the caller keeps the reservation. The message
	// carries the credit if it lies in shared memory.
	TryReserved(r *Reservation, stream uint32, n uint64, credit Credit) error
	// Free frees a reservation whose message was not sent.
	Free(r *Reservation)

	// Commit makes all appended records visible to the peer, without waiting.
	Commit() error
	// CommitAll makes all appended records visible to the peer, and waits until the caller's memory
	// is no longer needed. If the deadline passes before any byte was sent, the error is
	// [ErrTimedOut].
	CommitAll() error
	// Close appends a last record CLOSE_WRITE and commits it. Nothing can be sent afterwards.
	Close(stream uint32) error
	// WaitRoom waits until an attempt that returned ErrFull may succeed, until the deadline at the
	// latest.
	WaitRoom() error
	// Room returns a function that waits until the attempt that has just returned ErrFull may
	// succeed, without a deadline. Another goroutine may call this function while the sender is in
	// use.
	Room() func() error
	// Unwritten returns a function that waits until everything that was committed has left this
	// process. Another goroutine may call it while the sender is in use. The result is nil if
	// everything has left this process; Close then does not wait.
	Unwritten() func() error
	// SetDeadline sets the time at which WaitRoom fails. The zero time means never.
	SetDeadline(t time.Time) error
	// IsLate reports whether the deadline set by SetDeadline has passed.
	IsLate() bool
}

// A Credit is the credit that a BLOB carries, in its field "credited" (SPEC 11.4).
type Credit struct {
	IsThere  bool
	Credited uint64
}

// IsShared reports whether the peer reads the message in the reserved memory itself, so that no
// copy is needed.
func (r *Reservation) IsShared() bool { return r.memory != nil }

// A Reservation is memory for one message. The caller writes the message there before it is sent.
type Reservation struct {
	// Bytes is the reserved memory, with the length that the caller asked for. It may hold bytes of
	// earlier messages of this process.
	Bytes []byte
	block ring.Block
	// memory is the mapping of the region or segment in which the block lies; nil if the
	// reservation is private memory.
	memory *mapping
}

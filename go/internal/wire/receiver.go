// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"time"

	"partywall.test/go/internal/layout"
)

// Receiver reads the records of one direction of a connection. One goroutine uses it at a time, but
// any goroutine may call SetDeadline.
//
//	Next ──▶ CopyTo, Take or Payload ──▶ Done     or, if there is no record: Poll or Wait, again
type Receiver interface {
	// Next returns the next record, and whether there is one. It handles the records PAD, SEGMENT
	// and SEGMENT_RETIRE itself, and does not return them. When no more records can come, the error
	// is [ErrDisconnected], or another reason why the connection has ended. It returns CLOSE_WRITE
	// as a record, after which the caller reads no more.
	Next() (Record, bool, error)
	// CopyTo copies the message of the current record, a DATA or BLOB, to the beginning of into,
	// and returns the number of bytes copied.
	CopyTo(into []byte) int
	// Take returns the message of the current record, a DATA or BLOB. The message stays valid after
	// Done.
	Take() *Message
	// Lend returns the message of a BLOB where it lies in a trusted peer's memory. It also returns
	// the lender to whom the caller must return the block once nobody reads the message any more.
	// The lender is nil if the message does not lie there; then the caller uses Take.
	Lend() (message []byte, lender *Lender, block uint64)
	// Payload returns the payload of the current record, which is no BLOB. The payload is valid
	// until Done.
	Payload() []byte
	// Done ends the use of the current record, the one that Next returned.
	Done()

	// Poll reads records that have come from the peer, without waiting.
	Poll() error
	// Wait waits until Next may return a record or an error, or Wake is called. If polls is true,
	// it polls before it sleeps, as the settings say; if not, it sleeps at once.
	Wait(polls bool) error
	// Wake makes Wait return: the call of Wait that is under way, or else the next one. Any
	// goroutine may call Wake, even after the connection is closed. A user of the receiver calls
	// either Wake or SetDeadline, never both.
	Wake()
	// SetDeadline sets the time at which Wait fails. The zero time means never.
	SetDeadline(t time.Time) error
	// IsLate reports whether the deadline set by SetDeadline has passed.
	IsLate() bool
	// Leave tells the peer that this side reads no more records.
	Leave()
}

// A Record is the next record of a direction, as [Receiver.Next] returns it.
type Record struct {
	Kind   layout.Kind
	Stream uint32
	// Len is the length in bytes of the message that a DATA or BLOB carries; for another record it
	// is the length of the payload.
	Len int
	// Credit is the credit that a BLOB carries.
	Credit Credit
}

// IsMessage reports whether the record carries a whole message.
func (r Record) IsMessage() bool { return r.Kind == layout.KindData || r.Kind == layout.KindBlob }

// A Message is a received message. It stays valid until it is released, even after the end of the
// connection.
type Message struct {
	bytes  []byte
	lender *Lender // nil if the message lies in private memory
	block  uint64
}

// NewMessage returns a message whose bytes are private memory of this process.
func NewMessage(b []byte) *Message { return &Message{bytes: b} }

// NewBorrowedMessage returns a message that lies in a block of the peer's memory. When the message
// is released, the block goes back to the lender.
func NewBorrowedMessage(b []byte, lender *Lender, block uint64) *Message {
	return &Message{b, lender, block}
}

// Bytes returns the bytes of the message. They may lie in shared memory that only the peer writes.
func (m *Message) Bytes() []byte { return m.bytes }

// Release frees the memory of the message, whose bytes must not be used any more. Another call of
// Release does nothing.
func (m *Message) Release() {
	lender := m.lender
	m.bytes, m.lender = nil, nil
	if lender != nil {
		lender.Release(m.block)
	}
}

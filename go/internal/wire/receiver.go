// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"time"

	"partywall.test/go/internal/layout"
)

// Receiver reads the records of one direction. One goroutine uses it at a time, but any goroutine
// may call SetDeadline.
//
//	Next ──▶ CopyTo, Take or Payload ──▶ Done     or, if there is no record: Poll or Wait, again
type Receiver interface {
	// Next returns the next record, and whether there is one. It handles PAD, SEGMENT and
	// SEGMENT_RETIRE itself. After the last record the error is [ErrDisconnected], or another
	// reason why the connection has ended. After CLOSE_WRITE, which is a record, the caller reads
	// no more.
	Next() (Record, bool, error)
	// CopyTo copies the message of a DATA or BLOB to the beginning of into, and returns the number
	// of bytes copied.
	CopyTo(into []byte) int
	// Take returns the message of a DATA or BLOB. The message stays valid after Done.
	Take() *Message
	// Lend returns the message of a BLOB where it lies in a trusted peer's memory, and the lender
	// to whom the block goes back once nobody reads it any more. There is no lender if the message
	// lies elsewhere; then Take returns it.
	Lend() (message []byte, lender *Lender, block uint64)
	// Payload returns the payload of a record other than BLOB. It is valid until Done.
	Payload() []byte
	// Done moves past the record that Next returned.
	Done()

	// Poll reads records that have come, without waiting.
	Poll() error
	// Wait waits until Next may return a record or an error, or Wake is called. With polls set it
	// polls before it sleeps, as the settings say; otherwise it sleeps at once.
	Wait(polls bool) error
	// Wake makes Wait return, the call that is under way or else the next one. Any goroutine may
	// call it, even after the connection is closed. A receiver is used with Wake or SetDeadline.
	Wake()
	// SetDeadline sets the time at which Wait fails.
	SetDeadline(t time.Time) error
	// IsLate reports whether the deadline has passed.
	IsLate() bool
	// Leave tells the peer that this side reads no more.
	Leave()
}

// A Record is the next record of a direction, as [Receiver.Next] returns it.
type Record struct {
	Kind   layout.Kind
	Stream uint32
	// Len is the length of the message in bytes for DATA or BLOB, otherwise that of the payload.
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

// NewBorrowedMessage returns a message that lies in a block of a lender.
func NewBorrowedMessage(b []byte, lender *Lender, block uint64) *Message {
	return &Message{b, lender, block}
}

// Bytes returns the bytes of the message. They may lie in shared memory that only the peer writes.
func (m *Message) Bytes() []byte { return m.bytes }

// Release frees the memory of the message, whose bytes must not be used any more. A second call
// does nothing.
func (m *Message) Release() {
	lender := m.lender
	m.bytes, m.lender = nil, nil
	if lender != nil {
		lender.Release(m.block)
	}
}

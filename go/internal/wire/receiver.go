// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"time"

	"partywall.test/go/internal/layout"
)

// Receiver reads the records of one direction. One goroutine uses it at a time; SetDeadline is for
// any.
//
//	Next ──▶ CopyTo, Take or Payload ──▶ Done     or, if there is no record: Poll or Wait, again
type Receiver interface {
	// Next returns the next record, and whether there is one. PAD and the records of segments are
	// never returned. After the last record the error is [ErrDisconnected], or says what else
	// ended the connection; CLOSE_WRITE is a record, after which the caller reads no more.
	Next() (Record, bool, error)
	// CopyTo copies the bytes of the message of a DATA or BLOB to the beginning of into, and
	// returns how many there are.
	CopyTo(into []byte) int
	// Take returns the message of a DATA or BLOB as a message that outlives Done.
	Take() *Message
	// Payload returns the payload of a record that is no BLOB. It is valid until Done.
	Payload() []byte
	// Done finishes with the record.
	Done()

	// Poll looks for more records, without waiting.
	Poll() error
	// Wait waits until Next may find a record or an end.
	Wait() error
	// SetDeadline sets the time at which Wait fails.
	SetDeadline(t time.Time) error
	// IsLate reports whether the deadline has passed.
	IsLate() bool
	// Leave tells the peer that this side reads no more.
	Leave()
}

// A Record is what [Receiver.Next] found.
type Record struct {
	Kind   layout.Kind
	Stream uint32
	// Len is the size of the message of a DATA or BLOB in bytes, else that of the payload.
	Len int
	// Credit is that of a BLOB.
	Credit Credit
}

// IsMessage reports whether the record carries a whole message.
func (r Record) IsMessage() bool { return r.Kind == layout.KindData || r.Kind == layout.KindBlob }

// A Message is a received message. It stays valid until it is released, also after the connection
// has ended.
type Message struct {
	bytes  []byte
	origin origin
}

// origin is where the memory of a message comes from. It is nil if the memory is private.
type origin interface {
	giveBack(*Message)
}

// NewMessage returns a message of private memory.
func NewMessage(b []byte) *Message { return &Message{bytes: b} }

// Bytes returns the message. Over shared memory it may lie in memory that only the peer writes.
func (m *Message) Bytes() []byte { return m.bytes }

// Release gives the memory back. The bytes are not used any more. Releasing twice does nothing.
func (m *Message) Release() {
	origin := m.origin
	m.bytes, m.origin = nil, nil
	if origin != nil {
		origin.giveBack(m)
	}
}

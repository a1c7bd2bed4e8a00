// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"errors"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/session"
	"partywall.test/go/internal/wire"
)

// A Conn is a connection after its handshake, in which both sides agreed on a session.
//
// The methods that write are called one at a time, under the lock of the session. ReadRecord, and
// what Room returns, wait without the lock, each in one goroutine at a time.
type Conn interface {
	session.Writer

	// WriteMessage writes the records of a message that are still missing, and returns whether the
	// message is complete. If not, there is no room now, and the caller repeats the call later.
	// After an error the connection has ended.
	WriteMessage(m *Outgoing) (bool, error)

	// HasBlock reports whether a message of n bytes goes in a block of shared memory, if there is
	// any. It may be called without the lock.
	HasBlock(n int) bool

	// Reserve returns memory for a message of n bytes, without waiting: memory that the peer reads
	// if there is any now, and private memory otherwise.
	Reserve(n int) (*wire.Reservation, error)

	// Free frees a reservation that was not sent. It may follow Close.
	Free(r *wire.Reservation)

	// Room returns a wait until there may be more room than the last write found, which failed.
	// The error of the wait says why there will be none.
	Room() func() error

	// Unwritten returns a wait until everything that was written has left this process, or nil if
	// it has. CloseWrite does not wait then.
	Unwritten() func() error

	// ReadRecord waits for the next record. With polls set it may poll before it sleeps. The
	// payload is memory that the peer cannot write, and is valid until the next call. The message
	// is set if the record is DATA, or a BLOB, whose payload is then only its body.
	//
	// The error is [io.EOF] if the peer has hung up and every record that it had committed was
	// read, or errWoken after Wake.
	ReadRecord(polls bool) (layout.Header, []byte, session.Message, error)

	// Wake makes ReadRecord return errWoken if there is no record: the call that is under way, or
	// else the next one, which may have begun earlier. It may be called at any time.
	Wake()

	// Tick returns a tick that calls call, without a lock.
	Tick(call func()) tick

	// CloseWrite writes CLOSE_WRITE of the session. It is the last record.
	CloseWrite() error

	// Interrupt makes ReadRecord and the waits for room return with an error, now and later.
	Interrupt()

	// Close gives up the connection. No call is under way, and only Wake and Free may
	// follow.
	Close()
}

// errWoken is the error of [Conn.ReadRecord] after [Conn.Wake].
var errWoken = errors.New("woken")

// An Outgoing is a message that is being sent.
type Outgoing struct {
	Stream  uint32
	Payload []byte

	// Reserved is the reservation in which the payload lies, or nil. The connection clears it when
	// the message is written, and owns the memory then.
	Reserved *wire.Reservation

	// Credit is the credit that a BLOB of the stream may carry, if HasCredit is set. The connection
	// clears HasCredit when a record has carried it.
	Credit    uint64
	HasCredit bool

	// HasBegun says that the message's first record is written. Written counts the payload bytes
	// that are written, if the message goes in fragments. The connection sets both.
	HasBegun bool
	Written  int
}

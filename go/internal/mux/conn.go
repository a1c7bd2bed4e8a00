// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"errors"

	"partywall.test/go/internal/clock"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/session"
	"partywall.test/go/internal/wire"
)

// A Conn is the connection of a session after its handshake.
//
// The methods that write are called one at a time, by a caller that holds the session's lock.
// ReadRecord, and the functions that Room returns, wait without the lock, each in one goroutine at
// a time.
type Conn interface {
	session.Writer

	// WriteMessage writes those records of a message that are not written yet, and returns whether
	// the message is now complete. If it is not, there is no room now, and the caller repeats the
	// call later. After an error the connection has ended.
	WriteMessage(m *Outgoing) (bool, error)

	// HasBlock reports whether a message of n bytes goes in a block of shared memory if a block is
	// free. It may be called without the session's lock.
	HasBlock(n int) bool

	// Reserve returns memory for a message of n bytes, without waiting: a block that the peer reads
	// if one is free now, and private memory if not.
	Reserve(n int) (*wire.Reservation, error)

	// Free frees a reservation whose message was not sent. It may be called even after Close.
	Free(r *wire.Reservation)

	// Room returns a function that waits until there may be more room than the last write found,
	// which failed for lack of room. The error of that function says why there will be no room.
	Room() func() error

	// Unwritten returns a function that waits until everything that was written has left this
	// process, or nil if everything has. Once it has, CloseWrite does not wait.
	Unwritten() func() error

	// ReadRecord waits for the next record. If polls is true, it may poll before it sleeps; if not,
	// it sleeps at once. The payload is memory that the peer cannot write, and is valid until the
	// next call. The message is set if the record is DATA, or a BLOB, whose payload is then only
	// its body.
	//
	// The error is [io.EOF] if the peer has hung up and every record that it had committed was
	// read, or errWoken after a call of Wake.
	ReadRecord(polls bool) (layout.Header, []byte, session.Message, error)

	// Wake makes ReadRecord return errWoken if there is no record. It concerns the call of
	// ReadRecord that is under way, or else the next call. Wake may be called at any time.
	Wake()

	// Tick returns a timer that calls the function call without the session's lock.
	Tick(call func()) clock.Tick

	// CloseWrite writes the record CLOSE_WRITE of the session itself, the last record that this
	// side sends.
	CloseWrite() error

	// Interrupt makes ReadRecord, and the functions that wait for room, return with an error, now
	// and in all later calls.
	Interrupt()

	// Close gives up the connection. No other call may be under way, and later only Wake and Free
	// may be called.
	Close()
}

// errWoken is the error of [Conn.ReadRecord] when [Conn.Wake] has ended its wait.
var errWoken = errors.New("woken")

// An Outgoing is a message that is being sent.
type Outgoing struct {
	Stream  uint32
	Payload []byte

	// Reserved is the reservation in which the payload lies, or nil. When the message is written,
	// the connection sets it to nil and owns the memory.
	Reserved *wire.Reservation

	// Credit is the credit that the BLOB of this message may carry to the peer, if HasCredit is
	// set. The connection clears HasCredit when a BLOB has carried the credit.
	Credit    uint64
	HasCredit bool

	// HasBegun says that the first record of the message is written. Written is the number of
	// payload bytes that are written, for a message that goes in fragments. The connection sets
	// both.
	HasBegun bool
	Written  int
}

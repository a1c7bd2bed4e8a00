// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"context"
	"fmt"
	"net"

	"partywall.test/go/internal/mux"
	"partywall.test/go/internal/wire"
)

// A Message is a received message. It stays valid until it is released, also after the channel was
// closed and after the peer has died.
//
// A long message of a trusted peer lies in the peer's memory: until it is released, the peer cannot
// use that memory again. The receiver releases every message that it no longer needs. Tests of a
// program that are built with the tag pwpoison find the use of a message after its release.
type Message struct {
	message *wire.Message
}

// Bytes returns the bytes of the message. The caller may only read them, and only until
// [Message.Release].
func (m *Message) Bytes() []byte {
	m.checkUse()
	return m.message.Bytes()
}

// Len returns the size of the message in bytes.
func (m *Message) Len() int { return len(m.Bytes()) }

// Release frees the memory of the message. If the message lies in the peer's memory, the peer may
// then reuse it. Any goroutine may call Release; calling it again does nothing.
func (m *Message) Release() {
	m.poison()
	m.message.Release()
}

// A Reservation is memory for one message. Over shared memory the peer reads a long message in this
// memory, so that the message is never copied. Commit or Abort ends a reservation. One goroutine
// uses it at a time.
type Reservation struct {
	reserved reserved // nil after the end
}

// reserved is the memory of a reservation of a channel, or of a stream.
type reserved interface {
	bytes() []byte
	commit(n int) error
	abort()
}

// Bytes returns the reserved memory, with the size that the caller asked for. It may hold bytes of
// earlier messages of this process.
func (r *Reservation) Bytes() []byte {
	if r.reserved == nil {
		return nil
	}
	return r.reserved.bytes()
}

// Commit sends the first n bytes of the reserved memory as one message. It waits for room as
// [Channel.Send] or [Stream.Send] does. Even after an error the reservation has ended. Commit
// panics if n exceeds the reserved size.
func (r *Reservation) Commit(n int) error {
	if r.reserved == nil {
		return wrap("send", errReservationEnded)
	}
	if n < 0 || n > len(r.reserved.bytes()) {
		panic("partywall: more is committed than was reserved")
	}
	ending := r.reserved
	r.reserved = nil
	return ending.commit(n)
}

// errReservationEnded is the error of committing a reservation a second time, or after its Abort.
var errReservationEnded = fmt.Errorf("the reservation was committed or aborted: %w", net.ErrClosed)

// Abort frees the reserved memory without sending a message. On a reservation that has ended it
// does nothing.
func (r *Reservation) Abort() {
	if r.reserved != nil {
		r.reserved.abort()
		r.reserved = nil
	}
}

type channelReserved struct {
	channel *Channel
	memory  *wire.Reservation
}

func (r channelReserved) bytes() []byte      { return r.memory.Bytes }
func (r channelReserved) commit(n int) error { return r.channel.commit(r.memory, uint64(n)) }
func (r channelReserved) abort()             { r.channel.free(r.memory) }

type streamReserved struct{ reservation *mux.Reservation }

func (r streamReserved) bytes() []byte { return r.reservation.Bytes() }
func (r streamReserved) commit(n int) error {
	return wrap("send", r.reservation.Commit(context.Background(), n))
}
func (r streamReserved) abort() { r.reservation.Abort() }

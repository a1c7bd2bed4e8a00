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
// use that memory again. Every message is released once it is of no more use. Tests of a program
// that are built with the tag pwpoison find the use of a message after its release.
type Message struct {
	message *wire.Message
}

// Bytes returns the bytes of the message. The caller only reads them, and only until
// [Message.Release].
func (m *Message) Bytes() []byte {
	m.checkUse()
	return m.message.Bytes()
}

// Len returns the size in bytes.
func (m *Message) Len() int { return len(m.Bytes()) }

// Release frees the memory of the message, for the peer if it lies in the peer's memory. Any
// goroutine may call it; calling it again does nothing.
func (m *Message) Release() {
	m.poison()
	m.message.Release()
}

// A Reservation is memory for one message. Over shared memory the peer reads a long message there,
// so the sender writes it without a copy. A reservation ends with Commit or Abort, and one
// goroutine uses it at a time.
type Reservation struct {
	reserved reserved // nil after the end
}

// reserved is the memory of a reservation, of a channel or a stream.
type reserved interface {
	bytes() []byte
	commit(n int) error
	abort()
}

// Bytes returns the reserved memory, with the size that was asked for. It may hold old bytes of
// this process.
func (r *Reservation) Bytes() []byte {
	if r.reserved == nil {
		return nil
	}
	return r.reserved.bytes()
}

// Commit sends the first n bytes as one message. It waits for room as [Channel.Send] or
// [Stream.Send] does. Even after an error the reservation has ended. It panics if n exceeds the
// size.
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

// errReservationEnded is why a reservation cannot be committed again.
var errReservationEnded = fmt.Errorf("the reservation was committed or aborted: %w", net.ErrClosed)

// Abort frees the memory without sending a message. After Commit or Abort it does nothing.
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

// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import "partywall.test/go/internal/wire"

// A Message is a received message. It stays valid until it is released, also after the channel was
// closed and after the peer has died.
//
// A long message of a trusted peer lies in the peer's memory: until it is released, the peer cannot
// use that memory again. Every message is released once it is of no more use.
type Message struct {
	message *wire.Message
}

// Bytes returns the bytes of the message. The caller only reads them, and only until
// [Message.Release].
func (m *Message) Bytes() []byte { return m.message.Bytes() }

// Len returns the size in bytes.
func (m *Message) Len() int { return len(m.message.Bytes()) }

// Release frees the memory of the message, for the peer if it lies in the peer's memory. Any
// goroutine may call it; calling it again does nothing.
func (m *Message) Release() { m.message.Release() }

// A Reservation is memory for one message. Over shared memory the peer reads a long message there,
// so the sender writes it without a copy. A reservation ends with Commit or Abort, and one
// goroutine uses it at a time.
type Reservation struct {
	channel *Channel
	memory  *wire.Reservation
}

// Bytes returns the reserved memory, with the size that was asked for. It may hold old bytes of
// this process.
func (r *Reservation) Bytes() []byte {
	if r.memory == nil {
		return nil
	}
	return r.memory.Bytes
}

// Commit sends the first n bytes as one message. It waits for room as [Channel.Send] does. Even
// after an error the reservation has ended. It panics if n exceeds the size.
func (r *Reservation) Commit(n int) error {
	memory := r.memory
	if memory == nil {
		return wrap("send", wire.ErrClosed)
	}
	if n < 0 || n > len(memory.Bytes) {
		panic("partywall: more is committed than was reserved")
	}
	r.memory = nil
	return r.channel.commit(memory, uint64(n))
}

// Abort frees the memory without sending a message. After Commit or Abort it does nothing.
func (r *Reservation) Abort() {
	memory := r.memory
	if memory == nil {
		return
	}
	r.memory = nil
	r.channel.free(memory)
}

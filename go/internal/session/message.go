// SPDX-License-Identifier: MIT OR Apache-2.0

package session

import "partywall.test/go/internal/layout"

// A Message is a whole message that has arrived.
type Message struct {
	Bytes []byte
	// Owner takes back the memory of Bytes. It is nil if the garbage collector frees that memory.
	Owner Owner
	Block uint64 // Owner's name of the memory
}

// An Owner takes back the memory of messages that it has lent.
type Owner interface {
	// Release takes back the memory of one message, which nobody reads any more.
	Release(block uint64)
}

// Release frees the memory of the message. The caller must not read the bytes afterwards.
func (m Message) Release() {
	if m.Owner != nil {
		m.Owner.Release(m.Block)
	}
}

// cost returns the credit that the message uses (SPEC 11.4).
func (m Message) cost() uint64 { return layout.Footprint(uint64(len(m.Bytes))) }

// A messageQueue holds the unread messages of a stream in order. The stream's credit bounds the
// queue. Its zero value is empty.
type messageQueue struct {
	messages []Message
	next     int // index of the oldest message
}

func (q *messageQueue) isEmpty() bool { return q.next == len(q.messages) }

func (q *messageQueue) push(m Message) {
	if q.next > len(q.messages)/2 {
		kept := copy(q.messages, q.messages[q.next:])
		clear(q.messages[kept:])
		q.messages, q.next = q.messages[:kept], 0
	}
	q.messages = append(q.messages, m)
}

// pop removes the oldest message of the queue and returns it. The queue must not be empty.
func (q *messageQueue) pop() Message {
	m := q.messages[q.next]
	q.messages[q.next] = Message{}
	q.next++
	return m
}

// drop releases all unread messages of the stream, because nobody will read them.
func (q *messageQueue) drop() {
	for !q.isEmpty() {
		q.pop().Release()
	}
}

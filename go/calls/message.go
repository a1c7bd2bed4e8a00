// SPDX-License-Identifier: MIT OR Apache-2.0

package calls

import partywall "partywall.test/go"

// A Message is an answer. Its rules are those of [partywall.Message]: a long one may lie in the
// server's memory, and every one is released once it is of no more use.
type Message struct {
	message *partywall.Message
}

// Bytes returns the bytes of the answer. The caller only reads them, and only until
// [Message.Release].
func (m *Message) Bytes() []byte { return m.message.Bytes()[headerBytes:] }

// Len returns the size in bytes.
func (m *Message) Len() int { return m.message.Len() - headerBytes }

// Release frees the memory of the answer.
func (m *Message) Release() { m.message.Release() }

// SPDX-License-Identifier: MIT OR Apache-2.0

package calls

import partywall "partywall.test/go"

// A Message is the answer to a call. The rules of [partywall.Message] apply: a long answer may lie
// in the server's memory, and the caller releases each one that it no longer needs.
type Message struct {
	message *partywall.Message
}

// Bytes returns the bytes of the answer. The caller only reads them, and only until
// [Message.Release].
func (m *Message) Bytes() []byte { return m.message.Bytes()[headerBytes:] }

// Len returns the size of the answer in bytes.
func (m *Message) Len() int { return m.message.Len() - headerBytes }

// Release frees the memory of the answer.
func (m *Message) Release() { m.message.Release() }

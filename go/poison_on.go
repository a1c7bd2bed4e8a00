// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build pwpoison

package partywall

import (
	"bytes"

	"partywall.test/go/internal/wire"
)

// poisonByte replaces each byte of a message that was released.
const poisonByte = 0xDB

// received returns a copy of a message that was received, so that Release can overwrite it: the
// memory of the peer cannot be written.
func received(m *wire.Message) *Message {
	private := append([]byte{}, m.Bytes()...)
	m.Release()
	return &Message{wire.NewMessage(private)}
}

// checkUse panics if the message was released.
func (m *Message) checkUse() {
	if m.message.Bytes() == nil {
		panic("partywall: a message is used after its Release")
	}
}

// poison overwrites the bytes of a message that is released, for whoever has kept them.
func (m *Message) poison() {
	b := m.message.Bytes()
	copy(b, bytes.Repeat([]byte{poisonByte}, len(b)))
}

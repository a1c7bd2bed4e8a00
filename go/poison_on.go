// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build pwpoison

package partywall

import (
	"bytes"

	"partywall.test/go/internal/wire"
)

// poisonByte is the value with which each byte of a released message is overwritten.
const poisonByte = 0xDB

// received returns a copy of the message m, which Release can overwrite; the memory of the peer
// cannot be written.
func received(m *wire.Message) *Message {
	private := append([]byte{}, m.Bytes()...)
	m.Release()
	return &Message{wire.NewMessage(private)}
}

// checkUse panics if the message was released already.
func (m *Message) checkUse() {
	if m.message.Bytes() == nil {
		panic("partywall: a message is used after its Release")
	}
}

// poison overwrites the bytes of a released message, so that code which still reads them notices.
func (m *Message) poison() {
	b := m.message.Bytes()
	copy(b, bytes.Repeat([]byte{poisonByte}, len(b)))
}

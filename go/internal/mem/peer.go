// SPDX-License-Identifier: MIT OR Apache-2.0

package mem

import (
	"sync/atomic"
	"unsafe"
)

// Peer is memory that the peer writes, and that this process only reads. The zero value is memory
// of no bytes.
//
// The peer may change any byte at any time. The code that reads a Peer loads a word once, checks
// the copy, and uses only the copy. Several goroutines may use a Peer at once.
type Peer struct {
	base unsafe.Pointer
	size uint64
}

// NewPeer returns the bytes b as a Peer. It panics unless b is empty or begins at a multiple of 8.
// The memory must stay mapped while the Peer is in use.
func NewPeer(b []byte) Peer { return Peer(NewOwn(b)) }

// Len returns the size of the memory in bytes.
func (m Peer) Len() uint64 { return m.size }

// Part returns the size bytes of the memory that begin at offset, a multiple of 8. It panics if
// they are not within the memory.
func (m Peer) Part(offset, size uint64) Peer { return Peer(Own(m).Part(offset, size)) }

// Load returns the word at offset. After the call this goroutine sees everything that the peer
// wrote before it published the value.
func (m Peer) Load(offset uint64) uint64 {
	return fromWire(atomic.LoadUint64(word(m.base, offset, m.size)))
}

// Copy copies len(into) bytes of the memory, from offset on, to into. It never looks at their
// values.
func (m Peer) Copy(into []byte, offset uint64) {
	copy(into, m.Bytes(offset, uint64(len(into))))
}

// Bytes returns the size bytes at offset where they lie, without a copy. Only the bytes of a
// trusted peer may be used so, because an untrusted peer may change a byte between two reads (SPEC
// 9.1). They are valid while the memory is mapped; writing to them is a fault.
func (m Peer) Bytes(offset, size uint64) []byte { return Own(m).Bytes(offset, size) }

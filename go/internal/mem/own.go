// SPDX-License-Identifier: MIT OR Apache-2.0

// Package mem accesses shared memory: words by atomic operations, payloads by copies, each access
// within the bounds of its memory.
//
//	Own   memory that this process alone writes (its region): load, store, publish
//	Peer  memory that the peer writes at any time: load one word, or copy bytes
//
// A word is 8 bytes at a multiple of 8, little-endian in memory (SPEC 1.2). An access outside the
// memory panics: callers check every number of the peer before they use it as an offset.
//
// The package does not map memory, and keeps no mapping alive: before the caller unmaps memory, it
// stops using every Own and Peer of it (SPEC 7.4). Mapped memory is invisible to the garbage
// collector.
//
// # Memory order
//
// The operations of sync/atomic are sequentially consistent, which satisfies every row of SPEC 4.7,
// and makes the fences of SPEC 6.2 unnecessary. [Own.Store] is a plain store for words that a later
// [Own.Publish] makes visible. The Go memory model keeps it before that store, and does not split a
// store of one aligned word.
package mem

import (
	"fmt"
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// WordBytes is the size of a word of shared memory in bytes.
const WordBytes = 8

// Own is memory that this process alone writes. The zero value is memory of no bytes.
//
// Several goroutines may use an Own at once if no two of them write the same bytes.
type Own struct {
	base unsafe.Pointer
	size uint64
}

// NewOwn returns the bytes b as an Own. It panics unless b is empty or begins at a multiple of 8.
// The memory must stay mapped while the Own is in use.
func NewOwn(b []byte) Own {
	base := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(base)%WordBytes != 0 {
		panic("mem: memory does not begin at a multiple of 8")
	}
	return Own{base: base, size: uint64(len(b))}
}

// Allocate returns size bytes of zeroed private memory, which the garbage collector frees.
func Allocate(size uint64) Own {
	words := make([]uint64, (size+WordBytes-1)/WordBytes)
	return Own{base: unsafe.Pointer(unsafe.SliceData(words)), size: size}
}

// Len returns the size of the memory in bytes.
func (m Own) Len() uint64 { return m.size }

// Part returns the size bytes of the memory that begin at offset, a multiple of 8. It panics if
// they are not within the memory.
func (m Own) Part(offset, size uint64) Own {
	check(offset, size, m.size)
	if offset%WordBytes != 0 {
		panic(fmt.Sprintf("mem: a part begins at %d, no multiple of 8", offset))
	}
	return Own{base: unsafe.Add(m.base, offset), size: size}
}

// Peer returns the same memory as a [Peer], which only reads it. It is for tests in which one
// process acts as both sides.
func (m Own) Peer() Peer { return Peer(m) }

// Load returns the word at offset, as this process last stored it.
func (m Own) Load(offset uint64) uint64 {
	return fromWire(atomic.LoadUint64(word(m.base, offset, m.size)))
}

// Store sets the word at offset. The peer sees the value at the latest once it has seen a later
// [Own.Publish]. The peer must not load the word before it sees that Publish.
func (m Own) Store(offset, value uint64) {
	*word(m.base, offset, m.size) = toWire(value)
}

// Publish sets the word at offset. A peer that loads the new value also sees every earlier write of
// this goroutine, and every load of this goroutine that precedes the call is over. A load that
// follows the call sees what a peer published before it loaded the word's former value.
func (m Own) Publish(offset, value uint64) {
	atomic.StoreUint64(word(m.base, offset, m.size), toWire(value))
}

// Bytes returns the size bytes of the memory that begin at offset. They are valid while the memory
// is mapped.
func (m Own) Bytes(offset, size uint64) []byte {
	check(offset, size, m.size)
	if size == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Add(m.base, offset)), size)
}

// Write copies p to the memory at offset.
func (m Own) Write(offset uint64, p []byte) {
	copy(m.Bytes(offset, uint64(len(p))), p)
}

// word returns the address of the word at offset in the memory of size bytes at base. It panics if
// the word is not within that memory; the owner of base keeps the memory mapped.
func word(base unsafe.Pointer, offset, size uint64) *uint64 {
	if offset%WordBytes != 0 || offset >= size&^(WordBytes-1) {
		panic(outside{offset, WordBytes, size})
	}
	return (*uint64)(unsafe.Add(base, offset))
}

// check panics unless the size bytes at offset lie within memory of limit bytes.
func check(offset, size, limit uint64) {
	if offset > limit || size > limit-offset {
		panic(outside{offset, size, limit})
	}
}

// outside is the value of a panic because of a wrong access. Its text is made only when somebody
// reads it, so that the compiler can inline the functions that panic.
type outside struct{ offset, size, limit uint64 }

func (o outside) Error() string {
	return fmt.Sprintf("mem: no access to %d bytes at %d in memory of %d bytes",
		o.size, o.offset, o.limit)
}

// bigEndian says whether this machine stores the highest byte of a word first.
const bigEndian = runtime.GOARCH == "s390x" || runtime.GOARCH == "ppc64" ||
	runtime.GOARCH == "mips" || runtime.GOARCH == "mips64"

// toWire returns the word that this machine stores so that the lowest byte of value comes first in
// memory.
func toWire(value uint64) uint64 {
	if bigEndian {
		return bits.ReverseBytes64(value)
	}
	return value
}

// fromWire returns the value of a word that this machine has loaded from shared memory, where the
// lowest byte comes first.
func fromWire(word uint64) uint64 { return toWire(word) }

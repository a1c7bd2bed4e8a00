// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

import "encoding/binary"

// A Header is the header of one record, after its checks (SPEC 4.2).
//
//	byte 0               8        12       16                            footprint
//	     | word0         | len    | stream | payload, len bytes | unused |
//
//	word0   bit 63 ............... 6 | 5 ...... 1 | 0
//	        position                 | kind       | committed
type Header struct {
	Position uint64
	Kind     Kind
	Len      uint32 // of the payload, in bytes
	Stream   uint32 // 0 on a channel, and for the session itself
}

// Footprint returns the number of ring bytes that a record with a payload of n bytes takes (SPEC
// 4.1). The sum does not overflow for any length that a record can have.
func Footprint(n uint64) uint64 {
	return (RecordHeaderBytes + n + SlotBytes - 1) &^ (SlotBytes - 1)
}

// Next returns the position of the record that follows this record.
func (h Header) Next() uint64 { return h.Position + Footprint(uint64(h.Len)) }

// Word0 returns the first word of a committed record (SPEC 4.2).
func Word0(position uint64, kind Kind) uint64 { return position + 2*uint64(kind) + 1 }

// Word1 returns the second word of a record, which holds the payload's length and the stream.
func Word1(length, stream uint32) uint64 { return uint64(length) | uint64(stream)<<32 }

// AppendHeader appends the 16 bytes of the record's header to b.
func (h Header) AppendHeader(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, Word0(h.Position, h.Kind))
	return binary.LittleEndian.AppendUint64(b, Word1(h.Len, h.Stream))
}

// ParseWord0 checks the first word of the record at the reader's position, and returns the record's
// kind (SPEC 4.2, 4.3). The word must not be 0: in a ring, 0 means that no record is there yet.
func ParseWord0(word, position uint64) (Kind, error) {
	if word&^KindMask != position|1 {
		return 0, ViolationWord
	}
	kind := Kind(word & KindMask >> 1)
	if kind == 0 || kind > KindEnd && kind != KindPad {
		return 0, ViolationKind
	}
	return kind, nil
}

// parseMove returns the kind of a record that moves a connection to shared memory, or false if the
// first word at the reader's position is not that of such a record (SPEC 8.5).
func parseMove(word, position uint64) (Kind, bool) {
	kind := Kind(word & KindMask >> 1)
	isMove := kind == KindMove || kind == KindSwitch
	return kind, isMove && word&^KindMask == position|1
}

// ParseRing checks both words of a record's header in a ring of size bytes, a power of two (SPEC
// 4.2 to 4.4). The caller has loaded each word once, and the first one is not 0.
func ParseRing(word0, word1, position, size uint64) (Header, error) {
	kind, err := ParseWord0(word0, position)
	if err != nil {
		return Header{}, err
	}
	h := Header{Position: position, Kind: kind, Len: uint32(word1), Stream: uint32(word1 >> 32)}
	at, footprint := position&(size-1), Footprint(uint64(h.Len))
	if kind == KindPad {
		if at == 0 || at+footprint != size {
			return Header{}, ViolationPad
		}
		return h, nil
	}
	if footprint > size/4 || at+footprint > size {
		return Header{}, ViolationRecordLength
	}
	return h, nil
}

// ParseSocket checks the header of a record on a socket (SPEC 8.1, 8.2), which is RecordHeaderBytes
// long. The argument moves says that both sides agreed that the connection may move to shared
// memory.
func ParseSocket(b []byte, position uint64, moves bool) (Header, error) {
	word1 := binary.LittleEndian.Uint64(b[RecordLenOffset:])
	word0 := binary.LittleEndian.Uint64(b)
	kind, isMove := parseMove(word0, position)
	var err error
	if !moves || !isMove {
		kind, err = ParseWord0(word0, position)
	}
	if err != nil {
		return Header{}, err
	}
	h := Header{Position: position, Kind: kind, Len: uint32(word1), Stream: uint32(word1 >> 32)}
	if h.Len > socketPayloadMax {
		return Header{}, ViolationRecordLength
	}
	return h, nil
}

// socketPayloadMax is the longest payload of a record on a socket, in bytes (SPEC 8.2).
const socketPayloadMax = 65536

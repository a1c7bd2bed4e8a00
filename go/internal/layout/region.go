// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

import (
	"encoding/binary"
	"math/bits"
)

// A Region is the header of a region: who owns it, and where its parts lie (SPEC 3.2).
//
//	0            4096           ring          release        slab           size
//	| header page | control page | record ring | release ring | slab        |
type Region struct {
	Size           uint64
	RingOffset     uint64
	RingSize       uint64
	ReleaseOffset  uint64
	ReleaseEntries uint64
	SlabOffset     uint64
	SlabSize       uint64
	SessionID      [16]byte
	OwnerPID       uint32
	Role           uint32
	Service        uint32
	CreatedNS      uint64
}

// RegionHeaderBytes is the size of the region's header; the listener's address follows it in the
// header page (SPEC 3.4).
const RegionHeaderBytes = 128

// An Expectation has the values of a region that its receiver knows from the handshake, before it
// reads the header.
type Expectation struct {
	Size          uint64 // of the descriptor
	SessionID     [16]byte
	Role          uint32 // of the region's owner
	PeerBlocksMax uint64 // of the owner's HELLO
}

// ParseRegion checks the header of a region, which the caller has copied to private memory.
func ParseRegion(header []byte, want Expectation) (Region, error) {
	if len(header) < RegionHeaderBytes || !isRegion(header) {
		return Region{}, ViolationRegionHeader
	}
	word64 := func(offset int) uint64 { return binary.LittleEndian.Uint64(header[offset:]) }
	word32 := func(offset int) uint32 { return binary.LittleEndian.Uint32(header[offset:]) }
	r := Region{
		Size:           word64(RegionRegionSizeOffset),
		RingOffset:     word64(RegionRingOffsetOffset),
		RingSize:       word64(RegionRingSizeOffset),
		ReleaseOffset:  word64(RegionReleaseOffsetOffset),
		ReleaseEntries: word64(RegionPeerBlocksMaxOffset),
		SlabOffset:     word64(RegionSlabOffsetOffset),
		SlabSize:       word64(RegionSlabSizeOffset),
		SessionID:      [16]byte(header[RegionSessionIDOffset:]),
		OwnerPID:       word32(RegionOwnerPIDOffset),
		Role:           word32(RegionRoleOffset),
		Service:        word32(RegionServiceOffset),
		CreatedNS:      word64(RegionCreatedNsOffset),
	}
	if r.Size != want.Size || r.SessionID != want.SessionID || r.Role != want.Role ||
		word32(RegionKindOffset) != RegionConnection ||
		!IsRingSize(r.RingSize) ||
		!IsReleaseEntries(r.ReleaseEntries) || r.ReleaseEntries < want.PeerBlocksMax ||
		!r.hasParts() {
		return Region{}, ViolationRegionHeader
	}
	return r, nil
}

// isRegion reports whether the bytes begin a region of this format: it compares magic, version,
// header size and layout hash.
func isRegion(header []byte) bool {
	return string(header[:8]) == RegionMagic &&
		binary.LittleEndian.Uint32(header[RegionVersionOffset:]) == MemoryFormatVersion &&
		binary.LittleEndian.Uint32(header[RegionHeaderSizeOffset:]) == PageBytes &&
		binary.LittleEndian.Uint64(header[RegionLayoutHashOffset:]) == LayoutHash
}

// hasParts reports whether record ring, release ring and slab lie in this order within the region.
func (r Region) hasParts() bool {
	end := uint64(ControlOffset + PageBytes)
	for _, part := range []struct{ offset, size uint64 }{
		{r.RingOffset, r.RingSize},
		{r.ReleaseOffset, r.ReleaseEntries * releaseEntryBytes}, // IsReleaseEntries bounds it
		{r.SlabOffset, r.SlabSize},
	} {
		partEnd, carry := bits.Add64(part.offset, part.size, 0)
		if part.offset%PageBytes != 0 || part.offset < end || carry != 0 || partEnd > r.Size {
			return false
		}
		end = partEnd
	}
	return true
}

// Append appends the 128 bytes of the region's header to dst.
func (r Region) Append(dst []byte) []byte {
	b := make([]byte, RegionHeaderBytes)
	copy(b, RegionMagic)
	word64 := binary.LittleEndian.PutUint64
	word32 := binary.LittleEndian.PutUint32
	word32(b[RegionVersionOffset:], MemoryFormatVersion)
	word32(b[RegionHeaderSizeOffset:], PageBytes)
	word64(b[RegionLayoutHashOffset:], LayoutHash)
	word64(b[RegionRegionSizeOffset:], r.Size)
	word64(b[RegionRingOffsetOffset:], r.RingOffset)
	word64(b[RegionRingSizeOffset:], r.RingSize)
	word64(b[RegionReleaseOffsetOffset:], r.ReleaseOffset)
	word64(b[RegionPeerBlocksMaxOffset:], r.ReleaseEntries)
	word64(b[RegionSlabOffsetOffset:], r.SlabOffset)
	word64(b[RegionSlabSizeOffset:], r.SlabSize)
	copy(b[RegionSessionIDOffset:], r.SessionID[:])
	word32(b[RegionOwnerPIDOffset:], r.OwnerPID)
	word32(b[RegionRoleOffset:], r.Role)
	word32(b[RegionKindOffset:], RegionConnection)
	word32(b[RegionServiceOffset:], r.Service)
	word64(b[RegionCreatedNsOffset:], r.CreatedNS)
	return append(dst, b...)
}

// releaseEntryBytes is the size of an entry of the release ring (SPEC 5.3).
const releaseEntryBytes = 8

// IsRingSize reports whether a record ring may have n bytes (SPEC 3.2).
func IsRingSize(n uint64) bool { return isPowerIn(n, RingBytesMin, RingBytesMax) }

// IsReleaseEntries reports whether a release ring may have n entries (SPEC 3.2).
func IsReleaseEntries(n uint64) bool { return isPowerIn(n, ReleaseEntriesMin, ReleaseEntriesMax) }

func isPowerIn(n, low, high uint64) bool {
	return n >= low && n <= high && n&(n-1) == 0
}

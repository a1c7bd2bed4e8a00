// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

import (
	"encoding/binary"
	"unicode"
	"unicode/utf8"
)

// An Identity is the description of a region by its owner, for tools (SPEC 3.4). Its values are
// unchecked claims, and none of them is a violation.
type Identity struct {
	OwnerPID  uint32
	Role      uint32
	Kind      uint32
	Service   uint32
	CreatedNS uint64
	Address   string
	Program   string
	State     uint64
	LastError uint64 // an ErrorNumber, if this version knows it
	ChangedNS uint64
	// Sending and Receiving are the counters of the region's owner for what it has sent and
	// received (SPEC 3.3).
	Sending   [CounterSendingCount]uint64
	Receiving [CounterReceivingCount]uint64
	Consumed  uint64 // a position
}

// ParseIdentity reads the header page and the control page of a region, which the caller has
// copied. If the bytes are no region of this format, the error is ViolationRegionHeader.
func ParseIdentity(pages []byte) (Identity, error) {
	if len(pages) < IdentityBytes || !isRegion(pages) {
		return Identity{}, ViolationRegionHeader
	}
	header, control := pages[:PageBytes], pages[ControlOffset:]
	word64 := binary.LittleEndian.Uint64
	word32 := binary.LittleEndian.Uint32
	i := Identity{
		OwnerPID:  word32(header[RegionOwnerPIDOffset:]),
		Role:      word32(header[RegionRoleOffset:]),
		Kind:      word32(header[RegionKindOffset:]),
		Service:   word32(header[RegionServiceOffset:]),
		CreatedNS: word64(header[RegionCreatedNsOffset:]),
		Address:   parseText(header[IdentityAddress:]),
		Program:   parseText(control[IdentityProgram:]),
		State:     word64(control[IdentityState:]),
		LastError: word64(control[IdentityLastError:]),
		ChangedNS: word64(control[IdentityChanged:]),
		Consumed:  word64(control[ControlConsumed:]),
	}
	for n := range i.Sending {
		i.Sending[n] = word64(control[ControlSendingCounters+8*n:])
	}
	for n := range i.Receiving {
		i.Receiving[n] = word64(control[ControlReceivingCounters+8*n:])
	}
	return i, nil
}

// parseText reads a text that the region's owner wrote. The text ends before the first byte that is
// not UTF-8, and before the first control character.
func parseText(b []byte) string {
	length := int(binary.LittleEndian.Uint16(b[IdentityTextLengthOffset:]))
	text := b[IdentityTextTextOffset:][:min(length, IdentityTextBytesMax)]
	end := 0
	for end < len(text) {
		r, size := utf8.DecodeRune(text[end:])
		if r == utf8.RuneError && size <= 1 || unicode.IsControl(r) {
			break
		}
		end += size
	}
	return string(text[:end])
}

// AppendText appends a text of an Identity to dst: its length and its bytes, 512 bytes in total. If
// the text is too long, the last whole characters that fit are kept.
func AppendText(dst []byte, text string) []byte {
	start := max(0, len(text)-IdentityTextBytesMax)
	for start > 0 && start < len(text) && !utf8.RuneStart(text[start]) {
		start++
	}
	b := make([]byte, IdentityTextTextOffset+IdentityTextBytesMax)
	n := copy(b[IdentityTextTextOffset:], text[start:])
	binary.LittleEndian.PutUint16(b[IdentityTextLengthOffset:], uint16(n))
	return append(dst, b...)
}

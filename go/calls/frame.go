// SPDX-License-Identifier: MIT OR Apache-2.0

package calls

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"partywall.test/go/internal/layout"
)

// A frame is the header of a message in a stream of calls (CALLS 2).
//
//	0      1            4             8                        16
//	┌──────┬────────────┬─────────────┬────────────────────────┬─────────┐
//	│ u8   │ 3 zeros    │ u32 word    │ u64 id                 │ payload │   little-endian
//	│ kind │            │             │                        │         │
//	└──────┴────────────┴─────────────┴────────────────────────┴─────────┘
//
// The word is the time in µs until the deadline of a call, where 0 is no deadline; of an error it
// is the code.
type frame struct {
	kind kind
	word uint32
	id   uint64
}

type kind uint8

const (
	kindCall kind = 1 + iota
	kindOneWay
	kindCancel
	kindAnswer
	kindError
)

// headerBytes is the size in bytes of an encoded frame.
const headerBytes = 16

// Codes of an ERROR frame that the protocol of calls itself defines (CALLS 4.2).
const (
	codesReserved = 0xffffff00 // the first of them
	codeBusy      = 0xffffff01
	codeDeadline  = 0xffffff02
	codeAborted   = 0xffffff03
)

// codeViolation is the code with which a side resets the stream after its peer broke a rule of the
// protocol (CALLS 5).
const codeViolation = 0xca110001

func (f frame) encode() (header [headerBytes]byte) {
	header[0] = byte(f.kind)
	binary.LittleEndian.PutUint32(header[4:], f.word)
	binary.LittleEndian.PutUint64(header[8:], f.id)
	return header
}

// decode returns the frame at the beginning of a message. The error is an [*Error] if the message
// breaks a rule of CALLS 1 or 2.
func decode(message []byte) (frame, error) {
	if len(message) < headerBytes {
		return frame{}, violation(layout.ErrorCallTooShort,
			"a message of %d bytes is shorter than the header of a call: is this a stream of calls?",
			len(message))
	}
	f := frame{
		kind: kind(message[0]),
		word: binary.LittleEndian.Uint32(message[4:]),
		id:   binary.LittleEndian.Uint64(message[8:]),
	}
	if [3]byte(message[1:4]) != [3]byte{} || f.id == 0 || !f.isLawful(len(message)-headerBytes) {
		return frame{}, violation(layout.ErrorCallHeader,
			"invalid call header (kind %d, id %d): is this a stream of calls?", f.kind, f.id)
	}
	return f, nil
}

// isLawful reports whether a frame of this kind, which is known, may carry a word that is not zero
// and a payload of payloadBytes bytes.
func (f frame) isLawful(payloadBytes int) bool {
	switch f.kind {
	case kindCall, kindOneWay, kindError:
		return true
	case kindCancel:
		return f.word == 0 && payloadBytes == 0
	case kindAnswer:
		return f.word == 0
	}
	return false
}

// timeLeft returns the time until the deadline of ctx in µs, rounded up and at least 1. The result
// is 0 if ctx has no deadline, or if the time does not fit into 32 bits (CALLS 3.5).
func timeLeft(ctx context.Context) uint32 {
	deadline, hasDeadline := ctx.Deadline()
	if !hasDeadline {
		return 0
	}
	return microseconds(time.Until(deadline))
}

func microseconds(left time.Duration) uint32 {
	us := (max(left, 1) - 1) / time.Microsecond // rounded down, of a nanosecond less
	if us >= math.MaxUint32 {
		return 0
	}
	return uint32(us) + 1
}

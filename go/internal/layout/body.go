// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

import "encoding/binary"

// A Blob is the body of a record BLOB: the part of its payload that says where a message lies that
// is too long for the ring (SPEC 5.2).
type Blob struct {
	Block   uint64
	Segment uint32 // 0 is the slab
	Offset  uint64
	Length  uint64
	// HasCredit says whether the BLOB also carries credit of its stream, which a BLOB on a channel
	// must not.
	HasCredit bool
	Credited  uint64
}

// Sizes of the body of a BLOB, in bytes, without and with the credit of its stream.
const (
	BlobBytes       = 32
	BlobCreditBytes = 40
)

// ParseBlob reads the body of a record BLOB, of 32 bytes, or of 40 with credit. The caller checks
// whether a BLOB on this connection may carry credit.
func ParseBlob(body []byte) (Blob, error) {
	if len(body) != BlobBytes && len(body) != BlobCreditBytes {
		return Blob{}, ViolationBody
	}
	b := Blob{
		Block:   binary.LittleEndian.Uint64(body[BlobBlockOffset:]),
		Segment: binary.LittleEndian.Uint32(body[BlobSegmentOffset:]),
		Offset:  binary.LittleEndian.Uint64(body[BlobOffsetOffset:]),
		Length:  binary.LittleEndian.Uint64(body[BlobLengthOffset:]),
	}
	if len(body) == BlobCreditBytes {
		b.HasCredit, b.Credited = true, binary.LittleEndian.Uint64(body[BlobBytes:])
	}
	return b, nil
}

// Append appends the body of the record BLOB to dst.
func (b Blob) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, b.Block)
	dst = binary.LittleEndian.AppendUint32(dst, b.Segment)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint64(dst, b.Offset)
	dst = binary.LittleEndian.AppendUint64(dst, b.Length)
	if b.HasCredit {
		dst = binary.LittleEndian.AppendUint64(dst, b.Credited)
	}
	return dst
}

// A Segment is the payload of a record SEGMENT or SEGMENT_RETIRE (SPEC 5.4).
type Segment struct {
	Number uint32
	Size   uint64 // in bytes
}

// SegmentBytes is the size in bytes of the payload of a record SEGMENT or SEGMENT_RETIRE.
const SegmentBytes = 16

// ParseSegment reads the payload of a record SEGMENT or SEGMENT_RETIRE.
func ParseSegment(body []byte) (Segment, error) {
	if len(body) != SegmentBytes {
		return Segment{}, ViolationBody
	}
	return Segment{
		Number: binary.LittleEndian.Uint32(body[SegmentNumberOffset:]),
		Size:   binary.LittleEndian.Uint64(body[SegmentSizeOffset:]),
	}, nil
}

// Append appends the payload of the record SEGMENT or SEGMENT_RETIRE to dst.
func (s Segment) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, s.Number)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	return binary.LittleEndian.AppendUint64(dst, s.Size)
}

// An Open is the payload of a record OPEN (SPEC 11.2).
type Open struct {
	Content  uint16
	Metadata []byte
}

// OpenHeadBytes is the size in bytes of the payload of a record OPEN before its metadata.
const OpenHeadBytes = 8

// ParseOpen reads the payload of a record OPEN. Metadata refers to bytes of payload, without a
// copy.
func ParseOpen(payload []byte) (Open, error) {
	if len(payload) < OpenHeadBytes || len(payload) > OpenHeadBytes+MetadataBytesMax {
		return Open{}, ViolationBody
	}
	content := binary.LittleEndian.Uint16(payload[OpenContentOffset:])
	return Open{Content: content, Metadata: payload[OpenHeadBytes:]}, nil
}

// Append appends the payload of the record OPEN to dst.
func (o Open) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint16(dst, o.Content)
	dst = append(dst, make([]byte, OpenHeadBytes-2)...)
	return append(dst, o.Metadata...)
}

// A Reset is the payload of a record RESET (SPEC 11.3).
type Reset struct {
	Code       uint32
	Directions uint32 // ResetSending, ResetReceiving, or both
}

// ParseReset reads the payload of a record RESET.
func ParseReset(payload []byte) (Reset, error) {
	if len(payload) != 8 {
		return Reset{}, ViolationBody
	}
	r := Reset{
		Code:       binary.LittleEndian.Uint32(payload[ResetCodeOffset:]),
		Directions: binary.LittleEndian.Uint32(payload[ResetDirectionsOffset:]),
	}
	if r.Directions == 0 || r.Directions&^(ResetSending|ResetReceiving) != 0 {
		return Reset{}, ViolationBody
	}
	return r, nil
}

// Append appends the payload of the record RESET to dst.
func (r Reset) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, r.Code)
	return binary.LittleEndian.AppendUint32(dst, r.Directions)
}

// ParseCredit reads the payload of a record CREDIT: the cost of all messages that the receiver of
// the stream has taken (SPEC 11.4).
func ParseCredit(payload []byte) (uint64, error) {
	if len(payload) != 8 {
		return 0, ViolationBody
	}
	return binary.LittleEndian.Uint64(payload), nil
}

// AppendCredit appends the payload of a record CREDIT to dst.
func AppendCredit(dst []byte, credited uint64) []byte {
	return binary.LittleEndian.AppendUint64(dst, credited)
}

// A GoAway is the payload of a record GO_AWAY (SPEC 11.6).
type GoAway struct {
	Code   uint32
	Flags  uint32 // GoAwayClosing or 0; other bits are kept
	Reason []byte // for operators, only with GoAwayClosing
}

// ParseGoAway reads the payload of a record GO_AWAY. Reason refers to bytes of payload, without a
// copy.
func ParseGoAway(payload []byte) (GoAway, error) {
	const head = 8
	if len(payload) < head || len(payload) > head+GoAwayReasonBytesMax {
		return GoAway{}, ViolationBody
	}
	g := GoAway{
		Code:   binary.LittleEndian.Uint32(payload[GoAwayCodeOffset:]),
		Flags:  binary.LittleEndian.Uint32(payload[GoAwayFlagsOffset:]),
		Reason: payload[head:],
	}
	if len(g.Reason) > 0 && g.Flags&GoAwayClosing == 0 {
		return GoAway{}, ViolationBody
	}
	return g, nil
}

// Append appends the payload of the record GO_AWAY to dst.
func (g GoAway) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, g.Code)
	dst = binary.LittleEndian.AppendUint32(dst, g.Flags)
	return append(dst, g.Reason...)
}

// A Ping is the payload of a record PING (SPEC 11.6).
type Ping struct {
	Answer bool
	Token  uint64
}

// ParsePing reads the payload of a record PING.
func ParsePing(payload []byte) (Ping, error) {
	if len(payload) != 16 {
		return Ping{}, ViolationBody
	}
	answer := binary.LittleEndian.Uint64(payload[PingAnswerOffset:])
	if answer != PingAsk && answer != PingAnswer {
		return Ping{}, ViolationBody
	}
	token := binary.LittleEndian.Uint64(payload[PingTokenOffset:])
	return Ping{Answer: answer == PingAnswer, Token: token}, nil
}

// Append appends the payload of the record PING to dst.
func (p Ping) Append(dst []byte) []byte {
	answer := uint64(PingAsk)
	if p.Answer {
		answer = PingAnswer
	}
	dst = binary.LittleEndian.AppendUint64(dst, answer)
	return binary.LittleEndian.AppendUint64(dst, p.Token)
}

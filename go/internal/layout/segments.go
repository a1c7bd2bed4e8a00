// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

// Limits are the limits that a side states in its HELLO, and that its peer must observe (SPEC 2.3).
type Limits struct {
	MapMax      uint64 // of region and segments mapped at a time, in bytes
	MessageMax  uint64 // of the payload of one message, in bytes
	SegmentsMax uint32 // mapped at a time, without the slab
}

// Segments are the segments that the peer has announced and not retired, with the slab of its
// region as number 0 (SPEC 5.4).
type Segments struct {
	limits Limits
	sizes  map[uint32]uint64
	mapped uint64 // bytes of region and segments
	last   uint32 // the highest number that was announced
}

// NewSegments returns segments of which only number 0 exists: the slab of slabSize bytes in a
// region of regionSize bytes.
func NewSegments(limits Limits, regionSize, slabSize uint64) *Segments {
	return &Segments{limits: limits, sizes: map[uint32]uint64{0: slabSize}, mapped: regionSize}
}

// Add checks the record SEGMENT, and adds its segment. The caller then takes the segment's
// descriptor from those that have come; if none has, the peer broke the rule
// ViolationSegmentMissing.
func (s *Segments) Add(segment Segment) error {
	if segment.Number <= s.last || segment.Size == 0 || segment.Size%GrainBytes != 0 {
		return ViolationBody
	}
	// The subtraction does not overflow: the peer's region was admitted under the same limit
	// MapMax, and so was each segment, so the mapped bytes are at most MapMax.
	if segment.Size > s.limits.MapMax-s.mapped ||
		uint64(len(s.sizes)) > uint64(s.limits.SegmentsMax) {
		return ViolationMemory
	}
	s.sizes[segment.Number], s.last = segment.Size, segment.Number
	s.mapped += segment.Size
	return nil
}

// Retire checks the record SEGMENT_RETIRE, and removes its segment.
func (s *Segments) Retire(segment Segment) error {
	size, there := s.sizes[segment.Number]
	if segment.Number == 0 || !there || size != segment.Size {
		return ViolationBody
	}
	delete(s.sizes, segment.Number)
	s.mapped -= size
	return nil
}

// CheckBlob checks that the message of a BLOB lies within a segment and is not too long (SPEC 5.2).
func (s *Segments) CheckBlob(b Blob) error {
	if b.Length > s.limits.MessageMax {
		return ViolationMessageLength
	}
	size, there := s.sizes[b.Segment]
	if !there || b.Offset > size || b.Length > size-b.Offset {
		return ViolationBody
	}
	return nil
}

// receive checks the payload of a record SEGMENT or SEGMENT_RETIRE.
func (s *Segments) receive(kind Kind, payload []byte) error {
	segment, err := ParseSegment(payload)
	if err != nil {
		return err
	}
	if kind == KindSegment {
		return s.Add(segment)
	}
	return s.Retire(segment)
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"fmt"

	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
)

// Consumer is the only reader of the peer's record ring.
//
//	          reported         position
//	──────────┼────────────────┼──────────────────────────▶ position
//	 the peer   less than an     0 if no record is published
//	 may write  eighth           yet, else a whole record
//
// A Consumer checks the headers of records. Its caller checks the order of the records' kinds, and
// their bodies.
type Consumer struct {
	ring mem.Peer
	own  mem.Own // control page of this process, with its word consumed
	size uint64  // of the ring in bytes

	position uint64 // of the next record
	reported uint64 // value of the word consumed
	broken   error  // violation that was found: nothing more is read
}

// NewConsumer returns a consumer of the peer's ring from position 0 on, which reports its progress
// in own, the control page of this process. It panics unless the size of ring is one that SPEC 3.2
// allows.
func NewConsumer(ring mem.Peer, own mem.Own) *Consumer {
	return &Consumer{ring: ring, own: own, size: ringSize(ring.Len())}
}

// Position returns the position of the next record.
func (c *Consumer) Position() uint64 { return c.position }

// IsReady reports whether [Consumer.Peek] would find a record or a violation. It is the cheap poll
// of a reader that waits.
func (c *Consumer) IsReady() bool { return c.ring.Load(c.offset(c.position)) != 0 }

// Peek returns the header of the next record, and whether there is one. Peek skips a PAD before the
// record. The record remains the next one until [Consumer.Advance].
//
// The error is a violation of the peer, and all later calls return the same error.
func (c *Consumer) Peek() (layout.Header, bool, error) {
	for c.broken == nil {
		at := c.offset(c.position)
		first := c.ring.Load(at)
		if first == 0 {
			return layout.Header{}, false, nil
		}
		second := c.ring.Load(at + mem.WordBytes)
		header, err := layout.ParseRing(first, second, c.position, c.size)
		if err == layout.ViolationWord && fault.Is("word_unchecked") {
			word := c.position | 1 | first&layout.KindMask
			header, err = layout.ParseRing(word, second, c.position, c.size)
		}
		if fault.Is("length_loaded_twice") {
			header.Len = uint32(c.ring.Load(at + mem.WordBytes))
		}
		if err != nil {
			c.broken = fmt.Errorf("record at position %d: %w", c.position, err)
			break
		}
		if header.Kind != layout.KindPad {
			return header, true, nil
		}
		// This loop skips at most one PAD: a PAD ends at the end of the ring, and check refuses a
		// PAD at the start of the ring.
		c.Advance(header)
	}
	return layout.Header{}, false, c.broken
}

// Copy copies len(into) bytes of the payload of a record that [Consumer.Peek] returned. The copy
// begins at byte from of the payload. Copy panics if the payload is shorter.
func (c *Consumer) Copy(into []byte, header layout.Header, from uint64) {
	c.ring.Copy(into, c.payload(header, from, uint64(len(into))))
}

// Payload returns the payload of a record that [Consumer.Peek] returned, without a copy. The peer
// must be trusted (SPEC 9.1). The bytes are valid until [Consumer.Report] is called after the
// record was passed by [Consumer.Advance].
func (c *Consumer) Payload(header layout.Header) []byte {
	size := uint64(header.Len)
	return c.ring.Bytes(c.payload(header, 0, size), size)
}

// payload returns the offset in the ring of a part of a record's payload. The part begins at byte
// number from of the payload, and has size bytes; if the payload ends before, payload panics.
func (c *Consumer) payload(header layout.Header, from, size uint64) uint64 {
	if from > uint64(header.Len) || size > uint64(header.Len)-from {
		panic("ring: bytes that are not in the payload")
	}
	return c.offset(header.Position) + layout.RecordHeaderBytes + from
}

// Advance moves past the record that [Consumer.Peek] returned. The peer may overwrite that record
// only after [Consumer.Report]. Advance panics if header is not that of the next record.
func (c *Consumer) Advance(header layout.Header) {
	if header.Position != c.position {
		panic("ring: records are consumed in order")
	}
	c.position = header.Next()
}

// IsReportDue reports whether an eighth of the ring is consumed and not reported. The caller then
// calls [Consumer.Report], so that the peer's producer gets room (SPEC 4.6).
func (c *Consumer) IsReportDue() bool {
	due := c.size / 8
	if fault.Is("late_report") {
		due = c.size
	}
	return c.position-c.reported >= due
}

// Report tells the peer that all records before the position are consumed, so that it may overwrite
// them. It returns whether the reported position has changed. If it has, the caller asks its
// [Waker] whether to notify the peer.
//
// A reader also reports before it sleeps, and after a bounded number of polls that find nothing
// (SPEC 4.6).
func (c *Consumer) Report() bool {
	if c.reported == c.position {
		return false
	}
	c.own.Publish(layout.ControlConsumed, c.position)
	c.reported = c.position
	return true
}

// offset returns the offset in the ring of the byte at a position.
func (c *Consumer) offset(position uint64) uint64 { return position & (c.size - 1) }

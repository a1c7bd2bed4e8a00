// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"errors"
	"fmt"

	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
)

// ErrFull reports that the ring has no room for a record now. Nothing has changed: the caller
// repeats the call when the peer has consumed more.
var ErrFull = errors.New("the ring is full")

// Producer is the only writer of a record ring.
//
//	          consumed                 published          tail
//	──────────┼────────────────────────┼──────────────────┼───────────▶ position
//	 free     │ the peer may read      │ the open batch   │ 0 │ free
//	                                     its first word is  └ zeroed before the batch is
//	                                     held back            published, or ahead of it
//
// [Producer.Reserve] appends a record to the open batch, [Producer.Commit] publishes the batch with
// one store, and [Producer.Abort] drops the batch. A single message is a batch of one.
//
// Invariants:
//
//  1. Everything before tail - size is consumed.
//  2. The slot at tail begins with 0 whenever the record before it is visible, so the peer finds 0
//     or a whole record there, never old payload or a word of a dropped batch (SPEC 4.5).
//  3. One slot after that one stays free, so a closing record always fits (SPEC 4.4).
type Producer struct {
	ring mem.Own
	peer mem.Peer // control page of the peer, with its word consumed
	size uint64   // of the ring in bytes

	consumed  uint64 // position up to which the peer has consumed, as last checked
	published uint64 // position behind the last published record
	tail      uint64 // position of the next record
	padding   uint64 // bytes of PAD in the open batch, which its limit does not count
	firstWord uint64 // word0 of the batch's first record; 0 if the batch is empty
	clean     uint64 // position up to which all slots from tail on begin with 0
	isClosed  bool
}

// aheadBytes is how far behind the tail [Producer.ZeroAhead] zeroes slots: four records that take
// one slot each.
const aheadBytes = 4 * layout.SlotBytes

// NewProducer returns a producer that writes to ring, which must be all zero. The peer's control
// page is peer. NewProducer panics unless the size of ring is one that SPEC 3.2 allows.
func NewProducer(ring mem.Own, peer mem.Peer) *Producer {
	size := ringSize(ring.Len())
	return &Producer{ring: ring, peer: peer, size: size, clean: size}
}

// Size returns the size of the ring in bytes.
func (p *Producer) Size() uint64 { return p.size }

// PayloadMax returns the longest payload of a record in bytes (SPEC 4.4).
func (p *Producer) PayloadMax() uint64 { return p.size/4 - layout.RecordHeaderBytes }

// Published returns the position after the last published record.
func (p *Producer) Published() uint64 { return p.published }

// Consumed returns the position up to which the peer has consumed records, as last loaded and
// checked.
func (p *Producer) Consumed() uint64 { return p.consumed }

// FitsBatch reports whether the open batch may grow by a record with a payload of n bytes (SPEC
// 4.4). If not, the caller commits the batch first.
func (p *Producer) FitsBatch(n uint64) bool {
	return p.tail-p.published-p.padding+layout.Footprint(n) <= p.size/2
}

// HasRoom reports whether the ring has room for a record with a payload of n bytes after the open
// batch. The error is a violation of the peer.
func (p *Producer) HasRoom(n uint64) (bool, error) {
	need := p.paddingFor(n) + layout.Footprint(n) + p.reserve()
	if p.fits(need) {
		return true, nil
	}
	if err := p.loadConsumed(); err != nil {
		return false, err
	}
	return p.fits(need), nil
}

// Reserve appends a record with a payload of n bytes to the open batch, and returns the memory of
// the payload. The memory holds old bytes; the caller fills it before [Producer.Commit], and does
// not use it later.
//
// The error is [ErrFull], or a violation of the peer. Reserve panics if n exceeds
// [Producer.PayloadMax], if the batch is full ([Producer.FitsBatch]), or after [Producer.Close].
func (p *Producer) Reserve(kind layout.Kind, stream uint32, n uint64) ([]byte, error) {
	if n > p.PayloadMax() || !p.FitsBatch(n) || p.isClosed {
		panic(fmt.Sprintf("ring: no record of %d bytes may be reserved here", n))
	}
	padding := p.paddingFor(n)
	if !p.fits(padding + layout.Footprint(n) + p.reserve()) {
		hasRoom, err := p.HasRoom(n)
		if err != nil {
			return nil, err
		}
		if !hasRoom {
			return nil, ErrFull
		}
	}
	if padding > 0 {
		p.put(layout.KindPad, 0, padding-layout.RecordHeaderBytes)
		p.padding += padding
	}
	at := p.put(kind, stream, n)
	return p.ring.Bytes(at+layout.RecordHeaderBytes, n), nil
}

// Append appends a record to the open batch, with a payload that is the concatenation of parts. Its
// errors and panics are those of [Producer.Reserve].
func (p *Producer) Append(kind layout.Kind, stream uint32, parts ...[]byte) error {
	var n uint64
	for _, part := range parts {
		n += uint64(len(part))
	}
	payload, err := p.Reserve(kind, stream, n)
	if err != nil {
		return err
	}
	for _, part := range parts {
		payload = payload[copy(payload, part):]
	}
	return nil
}

// Commit makes all records of the open batch visible to the peer, with one store. It does nothing
// if the batch is empty. The caller then asks its [Waker] whether to notify the peer.
func (p *Producer) Commit() {
	if p.firstWord == 0 {
		return
	}
	if p.tail >= p.clean {
		p.zeroUntil(p.tail + layout.SlotBytes)
	}
	if first := p.offset(p.published); fault.Is("plain_publish") {
		p.ring.Store(first, p.firstWord)
	} else {
		p.ring.Publish(first, p.firstWord)
	}
	p.published = p.tail
	p.padding, p.firstWord = 0, 0
}

// ZeroAhead zeroes the first words of the next free slots, unless a batch is open. It only saves
// time: the cache lines of these slots are in the peer's processor since the last lap, and the next
// Commit would have to fetch them before it publishes. The caller calls it after it has notified
// the peer.
func (p *Producer) ZeroAhead() {
	if until := p.tail + aheadBytes; p.firstWord == 0 && until > p.clean {
		if !fault.Is("zero_unread") {
			until = min(until, p.consumed+p.size)
		}
		p.zeroUntil(until)
	}
}

// zeroUntil zeroes the first words of the slots that begin before the position until and are not
// known to begin with 0. These slots must be free.
func (p *Producer) zeroUntil(until uint64) {
	p.clean = max(p.clean, p.tail)
	for ; p.clean < until; p.clean += layout.SlotBytes {
		if !fault.Is("no_zero_next_slot") {
			p.ring.Store(p.offset(p.clean), 0)
		}
	}
}

// Abort drops the open batch: the peer never sees it. The batch's first slot still begins with 0.
func (p *Producer) Abort() {
	if p.firstWord != 0 && !fault.Is("clean_after_abort") {
		p.clean = p.published + layout.SlotBytes // the slots behind may hold words of the batch
	}
	p.tail = p.published
	p.padding, p.firstWord = 0, 0
}

// Close publishes the record CLOSE_WRITE in the slot that is kept for it. It panics if a batch is
// open, or if the ring is closed already.
func (p *Producer) Close(stream uint32) {
	if p.firstWord != 0 || p.isClosed {
		panic("ring: closed within a batch, or twice")
	}
	if !p.fits(2 * layout.SlotBytes) {
		panic("ring: the slot of the closing record is not free")
	}
	p.put(layout.KindCloseWrite, stream, 0)
	p.isClosed = true
	p.Commit()
}

// reserve returns the number of bytes that must stay free after a record: the slot that Commit
// zeroes, and the slot for the closing record CLOSE_WRITE.
func (p *Producer) reserve() uint64 {
	if fault.Is("no_closing_slot") {
		return layout.SlotBytes
	}
	return 2 * layout.SlotBytes
}

// paddingFor returns the footprint of the PAD that must come before a record with a payload of n
// bytes. The result is 0 if the record needs no PAD.
func (p *Producer) paddingFor(n uint64) uint64 {
	untilEnd := p.size - p.offset(p.tail)
	if layout.Footprint(n) <= untilEnd || fault.Is("no_pad") {
		return 0
	}
	return untilEnd
}

// fits reports whether need bytes after the tail are free, according to the position that the peer
// last reported.
func (p *Producer) fits(need uint64) bool { return p.tail-p.consumed+need <= p.size }

// loadConsumed loads, once, the peer's word with the position up to which the peer has consumed
// records, and checks it (SPEC 4.6).
func (p *Producer) loadConsumed() error {
	found := p.peer.Load(layout.ControlConsumed)
	isWrong := found < p.consumed || found > p.published || found%layout.SlotBytes != 0
	if isWrong && !fault.Is("consumed_unchecked") {
		return fmt.Errorf("consumed is %d, outside %d..%d: %w",
			found, p.consumed, p.published, layout.ViolationConsumed)
	}
	p.consumed = found
	return nil
}

// put writes the header of a record at the tail, moves the tail past the record, and returns the
// record's offset in the ring. The first word of a batch is not written before Commit.
func (p *Producer) put(kind layout.Kind, stream uint32, n uint64) uint64 {
	at := p.offset(p.tail)
	word := layout.Word0(p.tail, kind)
	isFirst := p.firstWord == 0
	if isFirst {
		p.firstWord = word
	}
	if !isFirst || fault.Is("early_first_word") {
		p.ring.Store(at, word)
	}
	p.ring.Store(at+mem.WordBytes, layout.Word1(uint32(n), stream))
	p.tail += layout.Footprint(n)
	return at
}

// offset returns the offset in the ring of the byte at a position.
func (p *Producer) offset(position uint64) uint64 { return position & (p.size - 1) }

// ringSize returns size, and panics unless SPEC 3.2 allows a record ring of that size.
func ringSize(size uint64) uint64 {
	if !layout.IsRingSize(size) {
		panic(fmt.Sprintf("ring: no record ring has %d bytes", size))
	}
	return size
}

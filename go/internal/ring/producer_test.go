// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
)

const testRing = layout.RingBytesMin

func TestRecordsComeInOrder(t *testing.T) {
	p := newPair(testRing)
	for _, payload := range []string{"one", "", strings.Repeat("x", 49)} {
		p.send(t, payload)
	}
	for i, want := range []struct {
		position uint64
		payload  string
	}{{0, "one"}, {64, ""}, {128, strings.Repeat("x", 49)}} {
		header, payload := p.next(t)
		if header.Position != want.position || payload != want.payload {
			t.Errorf("record %d: %+v %q, want %+v", i, header, payload, want)
		}
	}
	p.empty(t)
}

func TestUnpublishedBatchIsInvisible(t *testing.T) {
	p := newPair(testRing)
	for i := range 3 {
		if err := p.producer.Append(layout.KindData, uint32(i), []byte("batch")); err != nil {
			t.Fatal(err)
		}
		p.empty(t)
	}
	p.producer.Commit()
	for i := range 3 {
		if header, _ := p.next(t); header.Stream != uint32(i) {
			t.Errorf("record %d is of stream %d", i, header.Stream)
		}
	}
	p.producer.Commit()
	p.empty(t)
}

func TestAbortedBatchLeavesNoGhost(t *testing.T) {
	p := newPair(testRing)
	for range 3 {
		if err := p.producer.Append(layout.KindData, 7, []byte("ghost")); err != nil {
			t.Fatal(err)
		}
	}
	p.producer.Abort()
	p.empty(t)
	p.send(t, "real")
	if _, payload := p.next(t); payload != "real" {
		t.Errorf("read %q", payload)
	}
	p.empty(t)
}

// Payloads hold words that would be legal records in the ring's next lap. The consumer must find
// none of them, because the producer zeroes the slot after each batch.
func TestForgedWordsAreNeverRead(t *testing.T) {
	for _, length := range []uint64{48, 49, 200, 1008} {
		p := newPair(testRing)
		for range 3 * testRing / 64 {
			position := p.producer.tail + p.producer.paddingFor(length) + layout.RecordHeaderBytes
			payload, err := p.producer.Reserve(layout.KindData, 0, length)
			if err != nil {
				t.Fatal(err)
			}
			forge(payload, position, testRing)
			p.producer.Commit()
			if count := p.drain(t); count != 1 {
				t.Fatalf("one record was sent, %d came", count)
			}
		}
	}
}

func TestRecordBeforeEndOfRingIsPadded(t *testing.T) {
	p := newPair(testRing)
	for range 15 {
		p.send(t, strings.Repeat("a", 240))
	}
	p.drain(t)
	// 256 bytes are left before the end of the ring: a record of exactly this footprint needs no
	// PAD.
	payload := strings.Repeat("b", 241)
	p.send(t, payload)
	if word := p.memory.Load(3840); word != layout.Word0(3840, layout.KindPad) {
		t.Errorf("the word at 3840 is %#x", word)
	}
	if header, got := p.next(t); header.Position != testRing || got != payload {
		t.Errorf("%+v %q", header, got)
	}
}

func TestRecordThatEndsWithRingIsNotPadded(t *testing.T) {
	p := newPair(testRing)
	for range 17 {
		p.send(t, strings.Repeat("a", 240))
		if header, _ := p.next(t); header.Position%256 != 0 {
			t.Fatalf("a PAD before %d", header.Position)
		}
		p.consumer.Report()
	}
}

func TestPadIsPublishedWithItsRecord(t *testing.T) {
	p := newPair(testRing)
	for range 15 {
		p.send(t, strings.Repeat("a", 240))
	}
	p.drain(t)
	payload, err := p.producer.Reserve(layout.KindData, 0, 900)
	if err != nil {
		t.Fatal(err)
	}
	p.empty(t)
	clear(payload)
	p.producer.Commit()
	p.next(t)
	p.empty(t)
}

func TestFullRingRefusesUntilConsumed(t *testing.T) {
	p := newPair(testRing)
	sent := 0
	for p.producer.Append(layout.KindData, 0, make([]byte, 48)) == nil {
		p.producer.Commit()
		sent++
	}
	if want := testRing/64 - 2; sent != want {
		t.Errorf("the ring takes %d records, want %d", sent, want)
	}
	err := p.producer.Append(layout.KindData, 0, make([]byte, 48))
	if !errors.Is(err, ErrFull) {
		t.Fatalf("append to a full ring: %v", err)
	}
	p.next(t)
	if err := p.producer.Append(layout.KindData, 0, nil); !errors.Is(err, ErrFull) {
		t.Errorf("the room of a record that is not reported was used: %v", err)
	}
	p.consumer.Report()
	p.send(t, "room")
}

func TestCloseFitsFullRing(t *testing.T) {
	for _, length := range []int{0, 48, 49, 1000} {
		p := newPair(testRing)
		count := 0
		for p.producer.Append(layout.KindData, 0, make([]byte, length)) == nil {
			p.producer.Commit()
			count++
		}
		for p.producer.Append(layout.KindData, 0, nil) == nil {
			p.producer.Commit()
			count++
		}
		p.producer.Close(3)
		for range count {
			p.next(t)
		}
		header, _ := p.next(t)
		if header.Kind != layout.KindCloseWrite || header.Stream != 3 || header.Len != 0 {
			t.Errorf("the last record is %+v", header)
		}
		p.empty(t)
	}
}

func TestConsumedOutsideRangeIsViolation(t *testing.T) {
	for _, found := range []uint64{64, 1, 191, 193, 320, 1 << 63, ^uint64(0), ^uint64(63)} {
		p := newPair(testRing)
		p.send(t, "a")
		p.send(t, "b")
		p.drain(t)
		if err := p.producer.loadConsumed(); err != nil {
			t.Fatal(err)
		}
		for p.producer.Append(layout.KindData, 0, make([]byte, 1008)) == nil {
			p.producer.Commit()
		}
		published := p.producer.Published()
		if found == 320 {
			found = published + 64
		}
		p.reading.Publish(layout.ControlConsumed, found)
		_, err := p.producer.HasRoom(1008)
		isViolation(t, err, layout.ViolationConsumed)
		_, err = p.producer.Reserve(layout.KindData, 0, 1008)
		isViolation(t, err, layout.ViolationConsumed)
		if p.producer.Consumed() != 128 || p.producer.Published() != published {
			t.Error("a refused word changed the producer")
		}
	}
}

func TestConsumedUpToPublishedIsAccepted(t *testing.T) {
	p := newPair(testRing)
	for p.producer.Append(layout.KindData, 0, make([]byte, 1008)) == nil {
		p.producer.Commit()
	}
	p.reading.Publish(layout.ControlConsumed, p.producer.Published())
	if hasRoom, err := p.producer.HasRoom(1008); err != nil || !hasRoom {
		t.Errorf("room %v, %v", hasRoom, err)
	}
}

func TestOpenBatchIsNotConsumable(t *testing.T) {
	p := newPair(testRing)
	p.send(t, "published")
	if err := p.producer.Append(layout.KindData, 0, []byte("open")); err != nil {
		t.Fatal(err)
	}
	p.reading.Publish(layout.ControlConsumed, 128)
	isViolation(t, p.producer.loadConsumed(), layout.ViolationConsumed)
}

func TestLimitsOfRecordAndBatch(t *testing.T) {
	p := newPair(testRing)
	if p.producer.PayloadMax() != 1008 {
		t.Errorf("the longest payload is %d", p.producer.PayloadMax())
	}
	for range 2 {
		if err := p.producer.Append(layout.KindData, 0, make([]byte, 1008)); err != nil {
			t.Fatal(err)
		}
	}
	if p.producer.FitsBatch(0) {
		t.Error("a batch exceeds half the ring")
	}
	misuses := map[string]func(){
		"batch beyond half": func() { _, _ = p.producer.Reserve(layout.KindData, 0, 0) },
		"close in a batch":  func() { p.producer.Close(0) },
		"record too long": func() {
			_, _ = newPair(testRing).producer.Reserve(layout.KindData, 0, 1009)
		},
		"record behind the end": func() {
			closed := newPair(testRing).producer
			closed.Close(0)
			_, _ = closed.Reserve(layout.KindData, 0, 0)
		},
		"closed twice": func() {
			closed := newPair(testRing).producer
			closed.Close(0)
			closed.Close(0)
		},
		"ring of 5000 bytes": func() { NewProducer(mem.Allocate(5000), mem.Peer{}) },
		"ring of 2048 bytes": func() { NewConsumer(mem.Allocate(2048).Peer(), mem.Own{}) },
	}
	for name, misuse := range misuses {
		mustPanic(t, name, misuse)
	}
}

// SPEC 4.4: the PAD within a batch does not count against the limit of the batch. Two of the
// longest records with a PAD between them are one batch.
func TestPaddingDoesNotCountForBatch(t *testing.T) {
	p := newPair(testRing)
	for range 15 {
		p.send(t, strings.Repeat("a", 240))
	}
	p.drain(t)
	for range 2 {
		if err := p.producer.Append(layout.KindData, 0, make([]byte, 1008)); err != nil {
			t.Fatal(err)
		}
	}
	p.producer.Commit()
	if count := p.drain(t); count != 2 {
		t.Errorf("%d records", count)
	}
}

func TestPartsAreJoined(t *testing.T) {
	p := newPair(testRing)
	if err := p.producer.Append(layout.KindBlob, 5, []byte("ab"), nil, []byte("cde")); err != nil {
		t.Fatal(err)
	}
	p.producer.Commit()
	header, payload := p.next(t)
	if header.Kind != layout.KindBlob || header.Stream != 5 || payload != "abcde" {
		t.Errorf("%+v %q", header, payload)
	}
}

func TestPayloadIsReadInPlaceOrCopiedInPart(t *testing.T) {
	p := newPair(testRing)
	p.send(t, "0123456789")
	header, _, err := p.consumer.Peek()
	if err != nil {
		t.Fatal(err)
	}
	part := make([]byte, 4)
	p.consumer.Copy(part, header, 6)
	if string(part) != "6789" || !bytes.Equal(p.consumer.Payload(header), []byte("0123456789")) {
		t.Errorf("read %q and %q", part, p.consumer.Payload(header))
	}
	mustPanic(t, "copy behind the payload", func() { p.consumer.Copy(part, header, 7) })
	header.Position += 64
	mustPanic(t, "advance behind another record", func() { p.consumer.Advance(header) })
}

func mustPanic(t *testing.T, name string, misuse func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", name)
		}
	}()
	misuse()
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"testing"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
	"partywall.test/go/internal/wait"
)

// receiverOfOne returns a receiver that waits in the given way, and has read the only record of its
// peer.
func receiverOfOne(t *testing.T, mode wait.Mode) *sharedReceiver {
	t.Helper()
	ring := mem.Allocate(hostileRingBytes)
	ring.Store(0, layout.Word0(0, layout.KindData))
	settings := readerSettings(TrustAuto)
	settings.Wait, settings.SpinBudget = mode, 50*time.Microsecond
	r := newSharedReceiver(detachedMemory(ring.Bytes(0, ring.Len()), 0, true), &settings)
	if record, isThere, err := r.Next(); err != nil || !isThere || record.Len != 0 {
		t.Fatalf("the record is %+v, %v, %v", record, isThere, err)
	}
	r.Done()
	return r
}

// isReported checks whether the word consumed of the receiver's side is behind the only record.
func isReported(t *testing.T, r *sharedReceiver, when string, want bool) {
	t.Helper()
	consumed := r.memory.own.control.Load(layout.ControlConsumed)
	if consumed != 0 && consumed != layout.SlotBytes || (consumed != 0) != want {
		t.Errorf("%s, consumed is %d; it is reported: want %v", when, consumed, want)
	}
}

// SPEC 4.6: a reader that only tries, or polls without end, reports its position after a bounded
// number of polls. It does not do so at once, because that would move a cache line for each
// message.
func TestPositionIsReportedAfterPollsInVain(t *testing.T) {
	r := receiverOfOne(t, wait.Adaptive)
	for polled := 0; polled <= missesMax; polled++ {
		if _, isThere, err := r.Next(); err != nil || isThere {
			t.Fatalf("another record: %v", err)
		}
		isReported(t, r, "while the reader tries", polled == missesMax)
		if err := r.Poll(); err != nil {
			t.Fatal(err)
		}
	}
	r = receiverOfOne(t, wait.Spin)
	for range missesMax {
		isReported(t, r, "while the reader spins", false)
		r.poll()
	}
	isReported(t, r, "after many polls", true)
}

func TestPositionIsReportedBeforeSleep(t *testing.T) {
	for _, polls := range []bool{true, false} {
		r := receiverOfOne(t, wait.Park)
		isReported(t, r, "before the wait", false)
		r.memory.records.limit.set(time.Unix(1, 0))
		if err := r.Wait(polls); err != ErrTimedOut {
			t.Fatalf("the wait ends with %v", err)
		}
		isReported(t, r, "after the wait", true)
	}
}

// SPEC 5.4: a sender whose peer takes one segment at a time waits until that was read. A reader
// that only tries reports it as soon as the ring is empty.
func TestSegmentIsReportedOnceTheRingIsEmpty(t *testing.T) {
	settings := readerSettings(TrustEveryone)
	settings.MemoryMax, settings.MessageMax, settings.MapMax = 8<<20, 8<<20, 16<<20
	ends := connectedPair(t, settings)
	sending := ends[0].Sender.(*sharedSender)
	if err := sending.TryMessage(0, make([]byte, 2<<20), Credit{}); err != nil {
		t.Fatal(err)
	}
	if err := sending.Commit(); err != nil {
		t.Fatal(err)
	}
	takeAll(t, ends[1].Receiver)
	reading := ends[1].Receiver.(*sharedReceiver)
	consumed := reading.memory.own.control.Load(layout.ControlConsumed)
	if published := sending.producer.Published(); consumed != published {
		t.Errorf("the position %d is reported, want %d", consumed, published)
	}
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"errors"
	"math/rand/v2"
	"testing"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
)

// A pair is a record ring with its producer and its consumer, and the control pages of both sides.
type pair struct {
	memory           mem.Own // of the ring
	sending, reading mem.Own // control pages of the producer's and of the consumer's side
	producer         *Producer
	consumer         *Consumer
}

func newPair(size uint64) *pair {
	p := &pair{
		memory:  mem.Allocate(size),
		sending: mem.Allocate(layout.PageBytes),
		reading: mem.Allocate(layout.PageBytes),
	}
	p.producer = NewProducer(p.memory, p.reading.Peer())
	p.consumer = NewConsumer(p.memory.Peer(), p.reading)
	return p
}

func (p *pair) send(t *testing.T, payload string) {
	t.Helper()
	if err := p.producer.Append(layout.KindData, 0, []byte(payload)); err != nil {
		t.Fatalf("appending %d bytes: %v", len(payload), err)
	}
	p.producer.Commit()
	p.producer.ZeroAhead()
}

// next takes the next record, and returns its header and payload. It fails the test if there is
// none.
func (p *pair) next(t *testing.T) (layout.Header, string) {
	t.Helper()
	header, isThere, err := p.consumer.Peek()
	if err != nil || !isThere {
		t.Fatalf("no record at %d: %v", p.consumer.Position(), err)
	}
	payload := make([]byte, header.Len)
	p.consumer.Copy(payload, header, 0)
	p.consumer.Advance(header)
	return header, string(payload)
}

// drain takes all published records, reports them as consumed, and returns their number.
func (p *pair) drain(t *testing.T) int {
	t.Helper()
	count := 0
	for {
		_, isThere, err := p.consumer.Peek()
		if err != nil {
			t.Fatal(err)
		}
		if !isThere {
			p.consumer.Report()
			return count
		}
		p.next(t)
		count++
	}
}

// empty fails the test if the ring's consumer finds a record or a violation.
func (p *pair) empty(t *testing.T) {
	t.Helper()
	if header, isThere, err := p.consumer.Peek(); isThere || err != nil {
		t.Fatalf("a record that was not published: %+v, %v", header, err)
	}
	if p.consumer.IsReady() {
		t.Fatal("the poll finds what is no record")
	}
}

// seeded returns a source of random numbers. If the test fails, it prints the seed.
func seeded(t *testing.T, seed uint64) *rand.Rand {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// forge fills b, a payload at this position of a ring. At each slot it puts the header of a record
// that would be legal there in the ring's next lap.
func forge(b []byte, position, size uint64) {
	for i := range b {
		b[i] = 0xff
	}
	at := position
	for at%layout.SlotBytes != 0 {
		at++
	}
	for ; at+layout.RecordHeaderBytes <= position+uint64(len(b)); at += layout.SlotBytes {
		header := layout.Header{Position: at + size, Kind: layout.KindData, Len: 4}
		copy(b[at-position:], header.AppendHeader(nil))
	}
}

func isViolation(t *testing.T, err error, want layout.Violation) {
	t.Helper()
	var found layout.Violation
	if !errors.As(err, &found) || found != want {
		t.Errorf("%v, want violation %d", err, want)
	}
}

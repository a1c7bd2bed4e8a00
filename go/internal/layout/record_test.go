// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"
)

func TestFootprint(t *testing.T) {
	for _, test := range []struct{ length, want uint64 }{
		{0, 64}, {48, 64}, {49, 128}, {112, 128}, {113, 192}, {math.MaxUint32, 1<<32 + 64},
	} {
		if got := Footprint(test.length); got != test.want {
			t.Errorf("footprint of %d is %d, want %d", test.length, got, test.want)
		}
	}
}

// A reader refuses the first word of a record if the word states another position than that of the
// reader, has an unknown kind, or is not committed.
func TestWord0(t *testing.T) {
	const position = 1 << 40
	known := 0
	for low := uint64(0); low < 64; low++ {
		kind, err := ParseWord0(position+low, position)
		number := Kind(low / 2)
		isKnown := number >= KindData && number <= KindEnd || number == KindPad
		switch {
		case low%2 == 0:
			if !errors.Is(err, ViolationWord) {
				t.Errorf("uncommitted %d is read with %v", low, err)
			}
		case !isKnown:
			if !errors.Is(err, ViolationKind) {
				t.Errorf("kind %d is read with %v", number, err)
			}
		case err != nil || kind != number || Word0(position, kind) != position+low:
			t.Errorf("kind %d is read as %v, %v", number, kind, err)
		default:
			known++
		}
	}
	if known != 16 {
		t.Errorf("%d kinds are known, want 16", known)
	}
	for bit := 6; bit < 64; bit++ {
		if _, err := ParseWord0(Word0(position, KindData)^1<<bit, position); !errors.Is(err, ViolationWord) {
			t.Errorf("a word with bit %d changed is read with %v", bit, err)
		}
	}
}

func TestHeaderIsWrittenAsItIsRead(t *testing.T) {
	want := Header{Position: 1 << 20, Kind: KindBlob, Len: BlobBytes, Stream: 7}
	b := want.AppendHeader(nil)
	if got, err := ParseSocket(b, want.Position, false); err != nil || got != want {
		t.Errorf("read as %+v, %v; want %+v", got, err, want)
	}
	ring, err := ParseRing(Word0(want.Position, want.Kind), Word1(want.Len, want.Stream), 1<<20, 4096)
	if err != nil || ring != want || ring.Next() != 1<<20+64 {
		t.Errorf("read as %+v, %v; want %+v", ring, err, want)
	}
}

func TestBodiesAreWrittenAsTheyAreRead(t *testing.T) {
	for _, body := range []interface{ Append([]byte) []byte }{
		Blob{Block: 1, Segment: 2, Offset: 3, Length: 4},
		Blob{Block: 1, Segment: 2, Offset: 3, Length: 4, HasCredit: true, Credited: 5},
		Segment{Number: 1, Size: 2},
		Open{Content: 2, Metadata: []byte("orders")},
		Reset{Code: ResetDropped, Directions: ResetReceiving},
		GoAway{Code: 3, Flags: GoAwayClosing | 4, Reason: []byte("end")},
		Ping{Token: 5},
		Ping{Answer: true, Token: 6},
	} {
		b := body.Append(nil)
		got, err := reread(body, b)
		if err != nil || !bytes.Equal(got, b) {
			t.Errorf("%T is written as %x, then as %x, %v", body, b, got, err)
		}
	}
}

// reread decodes the bytes b as the body of a record, of the same type as the argument body, and
// encodes its fields again.
func reread(body any, b []byte) ([]byte, error) {
	var again interface{ Append([]byte) []byte }
	var err error
	switch body.(type) {
	case Blob:
		again, err = ParseBlob(b)
	case Segment:
		again, err = ParseSegment(b)
	case Open:
		again, err = ParseOpen(b)
	case Reset:
		again, err = ParseReset(b)
	case GoAway:
		again, err = ParseGoAway(b)
	case Ping:
		again, err = ParsePing(b)
	}
	return again.Append(nil), err
}

func TestNumbersHaveNames(t *testing.T) {
	for _, test := range []struct {
		number any
		want   string
	}{
		{KindFragmentFirst, "fragment first"},
		{Kind(30), "30"},
		{RejectBusy, "busy"},
		{RejectCode(7), "7"},
		{ReasonMemfd, "memfd"},
		{FallbackReason(99), "99"},
		{ErrorTimedOut, "timed out"},
		{ErrorNumber(150), "violation of rule 50"},
		{ErrorNumber(999), "999"},
		{ViolationBlock.ErrorNumber(), "violation of rule block"},
		{ViolationCredit, "peer violated rule 17 (credit)"},
	} {
		if got := fmt.Sprint(test.number); got != test.want {
			t.Errorf("%T is %q, want %q", test.number, got, test.want)
		}
	}
	if got := ViolationBlock.ErrorNumber(); got != 110 {
		t.Errorf("error of violation 10 is %d, want 110", uint32(got))
	}
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"strings"
	"testing"
)

// The constant LayoutHash is the hash of the sixteen integers that SPEC 3.2 lists. The test
// computes it again from the other constants.
func TestLayoutHashIsThatOfTheConstants(t *testing.T) {
	hash := fnv.New64a()
	for _, n := range []uint64{
		MemoryFormatVersion, PageBytes, LineBytes, GrainBytes,
		ControlOffset, ControlConsumed, ControlAsleepRecords, ControlAsleepRoom, ControlReleased,
		ControlSendingCounters, ControlReceivingCounters,
		SlotBytes, RecordHeaderBytes, KindMask, BlobBytes, RegionHeaderBytes,
	} {
		hash.Write(binary.LittleEndian.AppendUint64(nil, n))
	}
	if hash.Sum64() != LayoutHash {
		t.Errorf("layout hash is %#x, want %#x", hash.Sum64(), uint64(LayoutHash))
	}
}

func TestRegionIsWrittenAsTheVector(t *testing.T) {
	want := vector(t, "region-header.bin")
	region, err := ParseRegion(want, imageExpectation)
	if err != nil {
		t.Fatal(err)
	}
	if got := region.Append(nil); !bytes.Equal(got, want) {
		t.Errorf("written as\n%x, want\n%x", got, want)
	}
}

func TestRegionParts(t *testing.T) {
	good, err := ParseRegion(vector(t, "region-header.bin"), imageExpectation)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		change func(*Region, *Expectation)
		want   error
	}{
		{"gap before the slab", func(r *Region, _ *Expectation) {
			r.SlabOffset, r.SlabSize = r.SlabOffset+4096, r.SlabSize-4096
		}, nil},
		{"no slab", func(r *Region, _ *Expectation) { r.SlabSize = 0 }, nil},
		{"no slab, beyond the region", func(r *Region, _ *Expectation) {
			r.SlabOffset, r.SlabSize = r.Size+4096, 0
		}, ViolationRegionHeader},
		{"more entries than announced", func(r *Region, _ *Expectation) { r.ReleaseEntries = 512 }, nil},
		{"fewer entries than announced", func(_ *Region, e *Expectation) { e.PeerBlocksMax = 16 },
			ViolationRegionHeader},
		{"other service", func(r *Region, _ *Expectation) { r.Service = 9 }, nil},
		{"other size of the descriptor", func(_ *Region, e *Expectation) { e.Size *= 2 },
			ViolationRegionHeader},
	} {
		t.Run(test.name, func(t *testing.T) {
			region, want := good, imageExpectation
			test.change(&region, &want)
			got, err := ParseRegion(region.Append(nil), want)
			if !errors.Is(err, test.want) || err == nil && got != region {
				t.Errorf("read as %+v, %v; want %+v, %v", got, err, region, test.want)
			}
		})
	}
	if _, err := ParseRegion(good.Append(nil)[:127], imageExpectation); err == nil {
		t.Error("a header of 127 bytes is read")
	}
}

func TestTexts(t *testing.T) {
	long := strings.Repeat("a", 600) + "é"
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"short", "unix:/run/app.sock", "unix:/run/app.sock"},
		{"end of a long one", long, long[len(long)-IdentityTextBytesMax:]},
		{"no part of a character", "é" + strings.Repeat("b", 509), strings.Repeat("b", 509)},
		{"escape sequence", "a\x1b[31m", "a"},
		{"control character of two bytes", "a\u0085b", "a"},
		{"not UTF-8", "a\xffb", "a"},
		{"the replacement character itself", "a\ufffdb", "a\ufffdb"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := AppendText(nil, test.text)
			if got := parseText(b); len(b) != 512 || got != test.want {
				t.Errorf("%d bytes, read as %q, want %q", len(b), got, test.want)
			}
		})
	}
}

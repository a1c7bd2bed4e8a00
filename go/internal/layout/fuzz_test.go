// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// addImages adds the images of one kind, such as rings, in spec/vectors, spec/hostile and
// spec/sessions to the seeds of the fuzz test f.
func addImages(f *testing.F, kind string) {
	f.Helper()
	for _, directory := range []string{"vectors", "hostile", "sessions"} {
		for _, image := range images(f, directory) {
			if image.kind == kind {
				f.Add(image.bytes)
			}
		}
	}
}

// checkViolation fails the test if err is set and is not a [Violation] that has a name.
func checkViolation(t *testing.T, err error) {
	t.Helper()
	var violation Violation
	if err != nil && (!errors.As(err, &violation) || violationNames[violation] == "") {
		t.Errorf("the error is %v, which is no violation", err)
	}
}

// FuzzFrame reads any bytes as a frame of the handshake. If the parser accepts the bytes, the frame
// is written again, and must then be read with the same fields.
func FuzzFrame(f *testing.F) {
	addImages(f, "frame")
	f.Fuzz(func(t *testing.T, b []byte) {
		want, err := readFrame(b)
		checkViolation(t, err)
		p, _ := ParsePreamble(b)
		if err != nil || p.Tag == HelloTag && p.Common() == 0 {
			return
		}
		if p.Length < FramePreambleBytes || p.Length > min(len(b), FrameBytesMax) {
			t.Fatalf("a frame of %d bytes is read from %d bytes", p.Length, len(b))
		}
		again, err := rewrite(b)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readFrame(again); err != nil || got != want {
			t.Errorf("read %q, and after it was written %q (%v)", want, got, err)
		}
	})
}

// FuzzRegion reads any bytes as the header of a region. If the parser accepts a header, its record
// ring, release ring and slab must lie in this order within the region.
func FuzzRegion(f *testing.F) {
	addImages(f, "region")
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRegion(b, imageExpectation)
		checkViolation(t, err)
		if err != nil {
			return
		}
		ends := []uint64{
			ControlOffset + PageBytes, r.RingOffset, r.RingOffset + r.RingSize, r.ReleaseOffset,
			r.ReleaseOffset + 8*r.ReleaseEntries, r.SlabOffset, r.SlabOffset + r.SlabSize, r.Size,
		}
		for i, end := range ends[1:] {
			if end < ends[i] {
				t.Errorf("the parts overlap: %d", ends)
			}
		}
		again, err := ParseRegion(r.Append(nil), imageExpectation)
		if err != nil || again != r {
			t.Errorf("read as %+v, and after it was written as %+v (%v)", r, again, err)
		}
	})
}

func FuzzIdentity(f *testing.F) {
	addImages(f, "identity")
	f.Fuzz(func(t *testing.T, b []byte) {
		i, err := ParseIdentity(b)
		checkViolation(t, err)
		for _, text := range []string{i.Address, i.Program} {
			if got := parseText(AppendText(nil, text)); got != text {
				t.Errorf("the text %q is read as %q after it was written", text, got)
			}
		}
	})
}

func FuzzControl(f *testing.F) {
	addImages(f, "control")
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err := readControl(image{bytes: b})
		checkViolation(t, err)
	})
}

// FuzzRing reads any bytes as a record ring, once with the rules of a channel and once with those
// of a session. Each error must be a violation.
func FuzzRing(f *testing.F) {
	addImages(f, "ring")
	addImages(f, "session-ring")
	f.Fuzz(func(t *testing.T, b []byte) {
		ring := make([]byte, RingBytesMin)
		copy(ring, b)
		for _, read := range []func(image) (string, error){readRingImage, readSessionRing} {
			_, err := read(image{bytes: ring})
			checkViolation(t, err)
		}
	})
}

// FuzzSocket reads any bytes as one direction of a socket, with the rules of a channel and of a
// session. It reads them a second time with corrected positions, because one changed length makes
// the positions of all later records wrong.
func FuzzSocket(f *testing.F) {
	addImages(f, "socket")
	addImages(f, "move")
	addImages(f, "session-socket")
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, read := range []func(image) (string, error){readSocketImage, readMoveImage, readSessionSocket} {
			for _, direction := range [][]byte{b, withPositions(b)} {
				_, err := read(image{bytes: direction})
				checkViolation(t, err)
			}
		}
	})
}

// withPositions returns a copy of the bytes of a socket, in which each record's header has the
// position that the lengths before it give.
func withPositions(b []byte) []byte {
	b = bytes.Clone(b)
	position := uint64(0)
	for rest := b; len(rest) >= RecordHeaderBytes; {
		low := binary.LittleEndian.Uint64(rest) & (KindMask | 1)
		binary.LittleEndian.PutUint64(rest, position|low)
		length := binary.LittleEndian.Uint32(rest[RecordLenOffset:])
		position += Footprint(uint64(length))
		rest = rest[min(uint64(len(rest)), RecordHeaderBytes+uint64(length)):]
	}
	return b
}

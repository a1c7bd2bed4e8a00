// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// vector returns the bytes of a file in spec/vectors, the reference encodings of the protocol.
func vector(tb testing.TB, file string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join(spec, "vectors", file))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestFramesAreWrittenAsTheVectors(t *testing.T) {
	for _, file := range []string{
		"hello.bin", "hello-service-unknown.bin", "offer-shm.bin", "offer-socket.bin",
		"offer-unknown-descriptor.bin", "ready.bin", "ready-socket.bin", "reject.bin",
	} {
		t.Run(file, func(t *testing.T) {
			want := vector(t, file)
			got, err := rewrite(want)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("written as\n%x, want\n%x (%v)", got, want, err)
			}
		})
	}
}

func TestFramesAreAppended(t *testing.T) {
	for _, frame := range []interface{ Append([]byte) []byte }{
		Hello{}, Offer{}, Ready{}, Reject{}, Region{}, Blob{}, Segment{}, Open{}, Reset{}, GoAway{}, Ping{},
	} {
		if got := frame.Append([]byte("before")); !bytes.HasPrefix(got, []byte("before")) {
			t.Errorf("%T overwrites what it is appended to: %q", frame, got)
		}
	}
}

func TestPreambleCommonVersion(t *testing.T) {
	for _, test := range []struct{ low, high, want uint16 }{
		{1, 1, 0}, {1, 2, 2}, {2, 2, 2}, {2, 7, 2}, {3, 4, 0}, {1, 65535, 2},
	} {
		if got := (Preamble{VersionMin: test.low, VersionMax: test.high}).Common(); got != test.want {
			t.Errorf("versions %d..%d have %d in common, want %d", test.low, test.high, got, test.want)
		}
	}
}

func TestFrameOfAnotherTagIsRefused(t *testing.T) {
	hello, reject := vector(t, "hello.bin"), vector(t, "reject.bin")
	_, offerErr := ParseOffer(hello)
	_, readyErr := ParseReady(hello)
	_, rejectErr := ParseReject(hello)
	_, helloErr := ParseHello(reject)
	for name, err := range map[string]error{
		"OFFER": offerErr, "READY": readyErr, "REJECT": rejectErr, "HELLO": helloErr,
	} {
		if !errors.Is(err, ViolationFrame) {
			t.Errorf("another frame is read as %s: %v", name, err)
		}
	}
}

func TestFramesIgnoreWhatFollowsThem(t *testing.T) {
	frame := vector(t, "reject.bin")
	want, err := readFrame(frame)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readFrame(append(frame, "more"...)); err != nil || got != want {
		t.Errorf("read %q, %v; want %q", got, err, want)
	}
}

// A HELLO with unusual values is decoded, and encoded again as the same bytes. An unknown kind of
// descriptor may occur twice (SPEC 2.2). Without the feature SHM, "peer blocks max" may have any
// value (SPEC 2.3).
func TestHelloIsNotRefusedForUnknownThings(t *testing.T) {
	hello, err := ParseHello(vector(t, "hello.bin"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		change func(*Hello)
		want   error
	}{
		{"unknown kind twice", func(h *Hello) { h.Descriptors = Descriptors{9, 5, 9, 0, 0} }, nil},
		{"known kind twice", func(h *Hello) { h.Descriptors = Descriptors{4, 5, 4} }, ViolationFrame},
		{"unknown feature", func(h *Hello) { h.Features |= 1 << 63 }, nil},
		{"9 blocks without SHM", func(h *Hello) { h.Features, h.PeerBlocksMax = FeatureSocket, 9 }, nil},
		{"no block with SHM", func(h *Hello) { h.PeerBlocksMax = 0 }, ViolationFrame},
		{"4 blocks with SHM", func(h *Hello) { h.PeerBlocksMax = 4 }, ViolationFrame},
		{"most blocks", func(h *Hello) { h.PeerBlocksMax = ReleaseEntriesMax }, nil},
		{"more blocks", func(h *Hello) { h.PeerBlocksMax = 2 * ReleaseEntriesMax }, ViolationFrame},
		{"all other limits 0", func(h *Hello) { h.MapMax, h.MessageMax, h.SegmentsMax = 0, 0, 0 }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			changed := hello
			test.change(&changed)
			got, err := ParseHello(changed.Append(nil))
			if !errors.Is(err, test.want) {
				t.Fatalf("read with %v, want %v", err, test.want)
			}
			if err == nil && !bytes.Equal(got.Append(nil), changed.Append(nil)) {
				t.Errorf("read as %+v, want %+v", got, changed)
			}
		})
	}
}

func TestRejectTextIsCut(t *testing.T) {
	got, err := ParseReject(Reject{Code: 99, Text: strings.Repeat("x", RejectTextMax+1)}.Append(nil))
	if err != nil || got.Code != 99 || len(got.Text) != RejectTextMax {
		t.Errorf("read code %v and %d bytes of text, %v", got.Code, len(got.Text), err)
	}
}

func TestDescriptorsBeyondTheFrameAreAProgramError(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a list of 8 descriptors is written")
		}
	}()
	Ready{Descriptors: make(Descriptors, DescriptorsMax+1)}.Append(nil)
}

func TestControlFrameWaitsForItsBytes(t *testing.T) {
	segment := AppendControlSegment(nil, 7)
	for n := 1; n < len(segment); n++ {
		if _, isWhole, err := ParseControl(segment[:n]); isWhole || err != nil {
			t.Errorf("%d bytes are read: whole %v, %v", n, isWhole, err)
		}
	}
	longest := append([]byte{ControlSegment, 1}, make([]byte, ControlFrameMax-2)...)
	binary.LittleEndian.PutUint16(longest[ControlFrameLengthOffset:], ControlFrameMax)
	for _, b := range [][]byte{segment, longest} {
		f, isWhole, err := ParseControl(append(b, ControlDoorbell))
		if err != nil || !isWhole || f.Length != len(b) || f.Descriptors != 1 {
			t.Errorf("a frame of %d bytes is read as %+v, %v, %v", len(b), f, isWhole, err)
		}
	}
}

func TestListOfEightDescriptorsIsRefused(t *testing.T) {
	for _, test := range []struct {
		count byte
		want  error
	}{{DescriptorsMax, nil}, {DescriptorsMax + 1, ViolationFrame}, {255, ViolationFrame}} {
		frame := Ready{Transport: TransportSocket}.Append(nil)
		frame[ReadyDescriptorsOffset] = test.count // of the unknown kind 0
		if _, err := ParseReady(frame); !errors.Is(err, test.want) {
			t.Errorf("a list of %d is read with %v, want %v", test.count, err, test.want)
		}
	}
}

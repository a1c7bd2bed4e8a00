// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"partywall.test/go/internal/transcript"
)

// brokenFrames maps a file of spec/handshakes to the tag of the one frame in it that breaks the
// rules of its own format. All other frames of the transcripts have the right format, and may only
// be refused because of the state of the handshake.
var brokenFrames = map[string]string{
	"acceptor-blocks-9.txt":            "HELLO",
	"acceptor-foreign.txt":             "bytes",
	"acceptor-length-0.txt":            "HELLO",
	"acceptor-length-long.txt":         "HELLO",
	"acceptor-list-8.txt":              "HELLO",
	"acceptor-list-same-elsewhere.txt": "HELLO",
	"acceptor-list-same.txt":           "HELLO",
	"acceptor-no-region.txt":           "OFFER",
	"acceptor-offer-transport.txt":     "OFFER",
	"acceptor-service-0.txt":           "HELLO",
	"acceptor-tag-for-ready.txt":       "bytes",
	"acceptor-version-0.txt":           "HELLO",
	"acceptor-version-range.txt":       "HELLO",
	"connector-bytes-early.txt":        "bytes",
	"connector-foreign.txt":            "bytes",
	"connector-no-region.txt":          "OFFER",
}

// cutFrames maps the transcripts in which the peer hangs up within a frame to the tag of that
// frame.
var cutFrames = map[string]string{"acceptor-close-first.txt": "bytes"}

func TestFramesOfHandshakes(t *testing.T) {
	var sent, received, broken, cut int
	for _, script := range transcript.All(t) {
		file := script.File
		for _, cells := range script.Lines {
			switch {
			case cells[0] == "receive":
				received++
				checkReceived(t, file, cells[1], cells[2])
			case cells[0] == "send" && cells[2] != "=":
				sent++
				frame, err := hex.DecodeString(cells[2])
				if err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				_, err = readFrame(frame)
				isBroken, isCut := brokenFrames[file] == cells[1], cutFrames[file] == cells[1]
				if isBroken {
					broken++
				}
				if isCut {
					cut++
				}
				if want := isBroken || isCut; want != errors.Is(err, ViolationFrame) {
					t.Errorf("%s: %s is read with %v, broken: %v", file, cells[1], err, want)
				}
			}
		}
	}
	if broken != len(brokenFrames) || cut != len(cutFrames) {
		t.Errorf("%d broken and %d cut frames, want %d and %d",
			broken, cut, len(brokenFrames), len(cutFrames))
	}
	if sent < 207 || received < 154 {
		t.Errorf("%d frames sent and %d received, want 207 and 154, or more", sent, received)
	}
}

// checkReceived decodes a frame that the side under test sends in a transcript. It fails the test
// after a violation, or unless encoding the frame gives the same bytes.
func checkReceived(t *testing.T, file, tag, digits string) {
	t.Helper()
	// The byte 0 replaces the wildcards of the transcript, except that "peer blocks max" becomes 8:
	// with shared memory it must be a power of two.
	fill := strings.ReplaceAll(digits, "..", "00")
	limit := 2 * HelloPeerBlocksMaxOffset
	if tag == "HELLO" && digits[limit:][:2] == ".." {
		fill = fill[:limit] + "08" + fill[limit+2:]
	}
	frame, err := hex.DecodeString(fill)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	again, err := rewrite(frame)
	if err != nil {
		t.Errorf("%s: %s that is to be received: %v", file, tag, err)
		return
	}
	if !bytes.Equal(frame, again) {
		t.Errorf("%s: %s is written as\n%x, want\n%x", file, tag, again, frame)
	}
}

// rewrite decodes a frame, and encodes its fields again.
func rewrite(frame []byte) ([]byte, error) {
	p, err := ParsePreamble(frame)
	if err != nil {
		return nil, err
	}
	switch p.Tag {
	case HelloTag:
		h, err := ParseHello(frame)
		return h.Append(nil), err
	case OfferTag:
		o, err := ParseOffer(frame)
		return o.Append(nil), err
	case ReadyTag:
		r, err := ParseReady(frame)
		return r.Append(nil), err
	}
	r, err := ParseReject(frame)
	return r.Append(nil), err
}

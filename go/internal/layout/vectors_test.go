// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const spec = "../../../spec"

// An image is a file of bytes in the specification's directory, with the result that its row of
// INDEX.md expects (SPEC 10).
type image struct {
	file, kind, expected string
	from                 uint64
	bytes                []byte
}

// images reads the images that the INDEX.md of a directory lists. It fails the test if an image has
// no row.
func images(tb testing.TB, directory string) []image {
	tb.Helper()
	var list []image
	for _, cells := range index(tb, directory, 5) {
		from, err := strconv.ParseUint(cells[2], 10, 64)
		if err != nil {
			tb.Fatalf("%s: %v", cells[0], err)
		}
		file := strings.Trim(cells[0], "`")
		content, err := os.ReadFile(filepath.Join(spec, directory, file))
		if err != nil {
			tb.Fatal(err)
		}
		expected := strings.TrimSuffix(strings.TrimPrefix(cells[3], "`"), "`")
		list = append(list, image{file, cells[1], expected, from, content})
	}
	files, err := filepath.Glob(filepath.Join(spec, directory, "*.bin"))
	if err != nil || len(files) != len(list) {
		tb.Fatalf("%s has %d images and %d rows (%v)", directory, len(files), len(list), err)
	}
	return list
}

// index returns the cells of those rows of a directory's INDEX.md that name a file.
func index(tb testing.TB, directory string, columns int) [][]string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(spec, directory, "INDEX.md"))
	if err != nil {
		tb.Fatal(err)
	}
	var rows [][]string
	for _, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.SplitN(strings.TrimSuffix(line, " |")[2:], " | ", columns)
		if len(cells) != columns {
			tb.Fatalf("%s/INDEX.md: a row of %d cells: %s", directory, len(cells), line)
		}
		rows = append(rows, cells)
	}
	return rows
}

func TestImages(t *testing.T) {
	for _, test := range []struct {
		directory string
		least     map[string]int // images of each kind; a later version of the directory has more
	}{
		{"vectors", map[string]int{
			"frame": 11, "region": 1, "identity": 6, "ring": 10, "session": 1, "socket": 2, "move": 2, "control": 2,
		}},
		{"hostile", map[string]int{
			"frame": 20, "region": 24, "identity": 6, "ring": 66, "socket": 13, "move": 8, "control": 12,
		}},
		{"sessions", map[string]int{"session-ring": 75, "session-socket": 84}},
	} {
		t.Run(test.directory, func(t *testing.T) {
			counts := make(map[string]int)
			all := images(t, test.directory)
			for _, image := range all {
				t.Run(image.file, func(t *testing.T) {
					checkImage(t, image)
					counts[image.kind]++
				})
			}
			read := 0
			for kind, count := range counts {
				read += count
				if count < test.least[kind] {
					t.Errorf("read %d images of the kind %s, want %d", count, kind, test.least[kind])
				}
			}
			if read != len(all) || len(counts) < len(test.least) {
				t.Errorf("read %v of %d images", counts, len(all))
			}
		})
	}
}

// checkImage reads an image, and compares its fields or its violation with those in the image's row
// of INDEX.md.
func checkImage(t *testing.T, image image) {
	t.Helper()
	read, ok := imageReaders[image.kind]
	if !ok {
		t.Fatalf("no reader for images of the kind %s", image.kind)
	}
	got, err := read(image)
	if number, isNumber := strconv.ParseUint(image.expected, 10, 8); isNumber == nil {
		var violation Violation
		if !errors.As(err, &violation) || violation != Violation(number) {
			t.Errorf("read %q, %v; want violation %d", got, err, number)
		}
		return
	}
	if err != nil || got != image.expected {
		t.Errorf("read %q, %v\nwant %q", got, err, image.expected)
	}
}

var imageReaders = map[string]func(image) (string, error){
	"frame":          func(i image) (string, error) { return readFrame(i.bytes) },
	"region":         readRegion,
	"identity":       readIdentity,
	"control":        readControl,
	"ring":           readRingImage,
	"session":        readRingOfBlobs,
	"socket":         readSocketImage,
	"move":           readMoveImage,
	"session-ring":   readSessionRing,
	"session-socket": readSessionSocket,
}

// readFrame reads any frame of the handshake, and returns its fields as the rows of INDEX.md give
// them.
func readFrame(b []byte) (string, error) {
	p, err := ParsePreamble(b)
	if err != nil {
		return "", err
	}
	switch p.Tag {
	case HelloTag:
		h, err := ParseHello(b)
		if err != nil {
			return "", err
		}
		if p.Common() == 0 {
			return fmt.Sprintf("HELLO other versions=%d..%d", h.VersionMin, h.VersionMax), nil
		}
		return fmt.Sprintf("HELLO versions=%d..%d features=%d service=%d fallback_reason=%d "+
			"map_max=%d message_max=%d peer_blocks_max=%d segments_max=%d pid=%d nonce=%s descriptors=%s",
			h.VersionMin, h.VersionMax, h.Features, h.Service, uint32(h.FallbackReason), h.MapMax,
			h.MessageMax, h.PeerBlocksMax, h.SegmentsMax, h.PID, h.Nonce, list(h.Descriptors)), nil
	case OfferTag:
		o, err := ParseOffer(b)
		return fmt.Sprintf("OFFER transport=%d reason=%d region_size=%d descriptors=%s",
			o.Transport, uint32(o.Reason), o.RegionSize, list(o.Descriptors)), err
	case ReadyTag:
		r, err := ParseReady(b)
		return fmt.Sprintf("READY transport=%d reason=%d flags=%d",
			r.Transport, uint32(r.Reason), r.Flags), err
	}
	r, err := ParseReject(b)
	return fmt.Sprintf("REJECT code=%d text=%q", uint32(r.Code), r.Text), err
}

func list(d Descriptors) string {
	return strings.ReplaceAll(fmt.Sprint([]uint8(d)), " ", ", ")
}

// The values of the region in all images. The region's owner is the acceptor, and its slab takes
// the rest of the region.
var imageExpectation = Expectation{
	Size:          131072,
	SessionID:     [16]byte([]byte("0123456789abcdef")),
	Role:          RoleAcceptor,
	PeerBlocksMax: 8,
}

const imageSlabBytes = 114688

func readRegion(i image) (string, error) {
	r, err := ParseRegion(i.bytes, imageExpectation)
	return fmt.Sprintf("region=%d ring=%d+%d release=%d+8*%d slab=%d+%d", r.Size, r.RingOffset,
		r.RingSize, r.ReleaseOffset, r.ReleaseEntries, r.SlabOffset, r.SlabSize), err
}

func readIdentity(image image) (string, error) {
	i, err := ParseIdentity(image.bytes)
	return fmt.Sprintf("pid=%d role=%d kind=%d service=%d created=%d address=\"%s\" program=\"%s\" "+
		"state=%d error=%d changed=%d sent=%d received=%d tail=%d consumed=%d", i.OwnerPID, i.Role,
		i.Kind, i.Service, i.CreatedNS, i.Address, i.Program, i.State, i.LastError, i.ChangedNS,
		i.Sending[CounterSendingMessages], i.Receiving[CounterReceivingMessages],
		i.Sending[CounterSendingTail], i.Consumed), err
}

func readControl(i image) (string, error) {
	var items []string
	for b := i.bytes; len(b) > 0; {
		f, isWhole, err := ParseControl(b)
		switch {
		case err != nil:
			return strings.Join(items, "; "), err
		case !isWhole:
			return strings.Join(append(items, "cut"), "; "), nil
		case f.Type == ControlDoorbell:
			items = append(items, "doorbell")
		case f.IsSkipped():
			items = append(items, fmt.Sprintf("skipped type=%d descriptors=%d", f.Type, f.Descriptors))
		default:
			items = append(items, fmt.Sprintf("segment %d", f.Segment))
		}
		b = b[f.Length:]
	}
	return strings.Join(items, "; "), nil
}

// The limits of the side that reads the images of record rings and sockets.
var imageLimits = Limits{MapMax: 262144, MessageMax: 65536, SegmentsMax: 2}

// segmentDescriptorsMax is the highest number of a segment whose descriptor counts as received
// while an image is read.
const segmentDescriptorsMax = 2

func readRingImage(i image) (string, error) {
	segments := NewSegments(imageLimits, imageExpectation.Size, imageSlabBytes)
	c := NewChannel(imageLimits, segments)
	return readRing(i, func(h Header, payload []byte) (string, error) {
		if err := c.Receive(h, payload); err != nil {
			return "", err
		}
		return content(h, payload, &c.Assembly)
	})
}

func readRingOfBlobs(i image) (string, error) {
	segments := NewSegments(imageLimits, imageExpectation.Size, imageSlabBytes)
	return readRing(i, func(h Header, payload []byte) (string, error) {
		stream := fmt.Sprintf("stream=%d ", h.Stream)
		if h.Kind == KindOpen {
			o, err := ParseOpen(append(make([]byte, OpenHeadBytes), payload...))
			return stream + text(o.Metadata), err
		}
		b, err := ParseBlob(payload)
		if err == nil {
			err = segments.CheckBlob(b)
		}
		return stream + blob(b), err
	})
}

func readSocketImage(i image) (string, error) { return readChannelSocket(i, false) }

// readMoveImage reads a direction of a socket whose connection may move to shared memory. With each
// record MOVE its descriptor counts as arrived, and the handshake on the pair counts as complete.
func readMoveImage(i image) (string, error) { return readChannelSocket(i, true) }

func readChannelSocket(i image, moves bool) (string, error) {
	c := NewChannel(imageLimits, nil)
	hasMoved, isClosed := false, false
	return readSocket(i, moves, func(h Header, payload, message []byte) (string, error) {
		switch {
		case h.Kind == KindBlob && message != nil:
			return text(message), nil
		case isClosed:
			return "", ViolationUnexpected
		case h.Kind == KindMove || h.Kind == KindSwitch:
			if hasMoved != (h.Kind == KindSwitch) {
				return "", ViolationUnexpected
			}
			if h.Len > 0 {
				return "", ViolationBody
			}
			hasMoved, isClosed = true, h.Kind == KindSwitch
			return "", nil
		}
		if err := c.Receive(h, payload); err != nil {
			return "", err
		}
		isClosed = h.Kind == KindCloseWrite
		return content(h, payload, &c.Assembly)
	})
}

// readRing hands each record of a ring to the function next. It returns the records' contents as
// the rows of INDEX.md give them.
func readRing(i image, next func(Header, []byte) (string, error)) (string, error) {
	var items []string
	size := uint64(len(i.bytes))
	for position := i.from; ; {
		b := i.bytes[position%size:]
		word0 := binary.LittleEndian.Uint64(b)
		if word0 == 0 {
			return strings.Join(items, "; "), nil
		}
		h, err := ParseRing(word0, binary.LittleEndian.Uint64(b[RecordLenOffset:]), position, size)
		if err != nil {
			return strings.Join(items, "; "), err
		}
		item, err := next(h, b[RecordHeaderBytes:][:h.Len])
		if err != nil {
			return strings.Join(items, "; "), err
		}
		items = append(items, strings.TrimRight(fmt.Sprintf("%d %s %s", position, kindText(h.Kind), item), " "))
		if h.Kind == KindCloseWrite && strings.Contains(item, "stream=0") {
			return strings.Join(items, "; "), nil
		}
		position = h.Next()
	}
}

// readSocket hands each record of one direction of a socket to the function next. A BLOB is handed
// over twice: with its body, and then with its message.
func readSocket(
	i image, moves bool, next func(h Header, payload, message []byte) (string, error),
) (string, error) {
	var items []string
	cut := func() (string, error) { return strings.Join(append(items, "cut"), "; "), nil }
	position := uint64(0)
	for b := i.bytes; len(b) > 0; {
		if len(b) < RecordHeaderBytes {
			return cut()
		}
		h, err := ParseSocket(b, position, moves)
		if err != nil {
			return "", err
		}
		b = b[RecordHeaderBytes:]
		if uint64(len(b)) < uint64(h.Len) {
			return cut()
		}
		payload := b[:h.Len]
		b = b[h.Len:]
		item, err := next(h, payload, nil)
		if err != nil {
			return "", err
		}
		if h.Kind == KindBlob {
			body, err := ParseBlob(payload)
			if err != nil {
				return "", err
			}
			if uint64(len(b)) < body.Length {
				return cut()
			}
			if item, err = next(h, payload, b[:body.Length]); err != nil {
				return "", err
			}
			b = b[body.Length:]
		}
		items = append(items, strings.TrimRight(fmt.Sprintf("%d %s %s", position, kindText(h.Kind), item), " "))
		position = h.Next()
	}
	return strings.Join(items, "; "), nil
}

// kindText returns the name of a record's kind as the rows of INDEX.md write it.
func kindText(kind Kind) string {
	var b strings.Builder
	for _, word := range strings.Fields(kind.String()) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// text returns a payload as the rows of INDEX.md write it: quoted if it is short and printable,
// otherwise its length and the sum of its bytes.
func text(payload []byte) string {
	isPrintable := len(payload) <= 16
	sum := 0
	for _, c := range payload {
		sum += int(c)
		isPrintable = isPrintable && c >= ' ' && c < 0x7f
	}
	if isPrintable {
		return fmt.Sprintf("%q", payload)
	}
	return fmt.Sprintf("len=%d sum=%d", len(payload), sum)
}

func blob(b Blob) string {
	s := fmt.Sprintf("block=%d segment=%d offset=%d length=%d", b.Block, b.Segment, b.Offset, b.Length)
	if b.HasCredit {
		s += fmt.Sprintf(" credited=%d", b.Credited)
	}
	return s
}

// content returns the fields of a record of a channel or stream as the rows of INDEX.md write them.
func content(h Header, payload []byte, a *Assembly) (string, error) {
	switch {
	case h.Kind == KindBlob:
		b, err := ParseBlob(payload)
		return blob(b), err
	case h.Kind == KindSegment || h.Kind == KindSegmentRetire:
		s, err := ParseSegment(payload)
		if h.Kind == KindSegment && s.Number > segmentDescriptorsMax {
			err = ViolationSegmentMissing
		}
		return fmt.Sprintf("number=%d size=%d", s.Number, s.Size), err
	case isFragment(h.Kind):
		got, total := a.Progress()
		return fmt.Sprintf("%d/%d", got, total), nil
	case h.Kind == KindPad:
		return fmt.Sprintf("len=%d", h.Len), nil
	case h.Kind == KindCloseWrite || h.Kind == KindEnd:
		return "", nil
	}
	return text(payload), nil
}

// An imageSession reads the images of sessions. It is the acceptor, whose application has opened
// stream 2 and sent one message of cost 128 on it.
type imageSession struct {
	session *Session
	unread  map[uint32]bool // the streams with messages, because the application takes none
}

func newImageSession(segments *Segments) imageSession {
	config := SessionConfig{
		Limits:       Limits{MapMax: 262144, MessageMax: 1048576, SegmentsMax: 2},
		Role:         RoleAcceptor,
		StreamWindow: 1000,
		StreamsMax:   4,
	}
	session := NewSession(config, segments)
	session.Open(2).Send(100)
	return imageSession{session, make(map[uint32]bool)}
}

// receive hands a record to the session, sends the record END where it is due, and returns the
// record's fields as the rows of INDEX.md write them.
func (s imageSession) receive(h Header, payload []byte) (string, error) {
	if err := s.session.Receive(h, payload); err != nil {
		return "", err
	}
	stream := fmt.Sprintf("stream=%d ", h.Stream)
	var a *Assembly
	if state := s.session.Stream(h.Stream); state != nil {
		a = &state.Assembly
		if h.Kind == KindData || h.Kind == KindBlob || h.Kind == KindFragmentLast {
			s.unread[h.Stream] = true
		}
		if h.Stream%2 == 1 && state.IsOver() && !state.hasSentEnd && !s.unread[h.Stream] {
			state.End()
		}
	}
	switch h.Kind {
	case KindOpen:
		o, err := ParseOpen(payload)
		return fmt.Sprintf("%scontent=%d %s", stream, o.Content, text(o.Metadata)), err
	case KindReset:
		r, err := ParseReset(payload)
		return fmt.Sprintf("%scode=%d directions=%d", stream, r.Code, r.Directions), err
	case KindCredit:
		credited, err := ParseCredit(payload)
		return fmt.Sprintf("%scredited=%d", stream, credited), err
	case KindGoAway:
		g, err := ParseGoAway(payload)
		return fmt.Sprintf("%scode=%d flags=%d %s", stream, g.Code, g.Flags, text(g.Reason)), err
	case KindPing:
		p, err := ParsePing(payload)
		answer := map[bool]int{true: 1}[p.Answer]
		return fmt.Sprintf("%sanswer=%d token=%d", stream, answer, p.Token), err
	}
	item, err := content(h, payload, a)
	return stream + item, err
}

func readSessionRing(i image) (string, error) {
	limits := Limits{MapMax: 262144, MessageMax: 1048576, SegmentsMax: 2}
	s := newImageSession(NewSegments(limits, imageExpectation.Size, imageSlabBytes))
	return readRing(i, s.receive)
}

func readSessionSocket(i image) (string, error) {
	s := newImageSession(nil)
	return readSocket(i, false, func(h Header, payload, message []byte) (string, error) {
		if h.Kind == KindBlob && message != nil {
			return fmt.Sprintf("stream=%d %s", h.Stream, text(message)), nil
		}
		return s.receive(h, payload)
	})
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package session

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"partywall.test/go/internal/layout"
)

// imagesDirectory is the directory of the images of sessions, which are records that the connector
// sends (SPEC 10).
const imagesDirectory = "../../../spec/sessions"

// imagesLeast is the least number of images in their directory; later versions of the specification
// have more.
const imagesLeast = 159

// An image is a file of records in imagesDirectory, with the result that its row of INDEX.md
// expects.
type image struct {
	file, expected string
	isRing         bool
	content        []byte
}

// images reads the images that the INDEX.md of imagesDirectory lists. It fails the test if an image
// has no row.
func images(tb testing.TB) []image {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(imagesDirectory, "INDEX.md"))
	if err != nil {
		tb.Fatal(err)
	}
	var list []image
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.SplitN(line, " | ", 5)
		file := strings.Trim(cells[0], "| `")
		content, err := os.ReadFile(filepath.Join(imagesDirectory, file))
		if err != nil || len(cells) != 5 {
			tb.Fatalf("%q: %v", line, err)
		}
		list = append(list, image{file, strings.Trim(cells[3], "`"), cells[1] == "session-ring", content})
	}
	files, err := filepath.Glob(filepath.Join(imagesDirectory, "*.bin"))
	if err != nil || len(files) != len(list) || len(list) < imagesLeast {
		tb.Fatalf("%d images and %d rows, want %d (%v)", len(files), len(list), imagesLeast, err)
	}
	return list
}

func TestImagesOfSessions(t *testing.T) {
	for _, image := range images(t) {
		t.Run(image.file, func(t *testing.T) {
			reader := newImageReader(t, image.isRing)
			read := reader.readSocket
			if image.isRing {
				read = reader.readRing
			}
			err := read(image.content)
			number, isNumber := strconv.ParseUint(image.expected, 10, 8)
			if isNumber == nil {
				var violation layout.Violation
				if !errors.As(err, &violation) || violation != layout.Violation(number) {
					t.Errorf("read with %v, want violation %d", err, number)
				}
				return
			}
			if records := strings.Count(image.expected, "; ") + 1; err != nil || reader.count != records {
				t.Errorf("%d records with %v, want %d", reader.count, err, records)
			}
		})
	}
}

// An imageReader is the acceptor of a session that reads the images. Its application has opened
// stream 2 and sent a message of cost 128 on it. It accepts every stream, and takes no message.
type imageReader struct {
	session *Session
	count   int // records
}

// WriteRecord drops the record, as a [Writer] that never lacks room.
func (imageReader) WriteRecord(layout.Kind, uint32, []byte) (bool, error) { return true, nil }

func newImageReader(tb testing.TB, isRing bool) *imageReader {
	tb.Helper()
	config := Config{
		Role:           layout.RoleAcceptor,
		Limits:         layout.Limits{MapMax: 262144, MessageMax: 1048576, SegmentsMax: 2},
		Window:         1000,
		StreamsMax:     4,
		PeerMessageMax: 1048576,
		PeerWindow:     1000,
		PeerStreamsMax: 4,
	}
	var segments *layout.Segments
	if isRing {
		segments = layout.NewSegments(config.Limits, 131072, 114688)
	}
	reader := &imageReader{session: New(config, segments)}
	stream, err := reader.session.Open(0, nil)
	if err != nil {
		tb.Fatal(err)
	}
	reader.flush(tb)
	if err := stream.MayBegin(100); err != nil {
		tb.Fatal(err)
	}
	stream.Begun(100)
	return reader
}

func (r *imageReader) flush(tb testing.TB) {
	if isDone, err := r.session.Flush(r); !isDone || err != nil {
		tb.Fatal(isDone, err)
	}
}

// receive hands one record to the session, accepts a new stream, and writes pending records.
func (r *imageReader) receive(h layout.Header, payload, message []byte) error {
	if _, err := r.session.Receive(h, payload, Message{Bytes: message}); err != nil {
		return err
	}
	r.count++
	if _, err := r.session.Accept(); err != nil && !errors.Is(err, ErrEmpty) && r.session.Err() == nil {
		return err
	}
	_, err := r.session.Flush(r)
	return err
}

// readRing reads the records of a ring up to the first word that is 0, or the end of the session.
func (r *imageReader) readRing(b []byte) error {
	size := uint64(len(b))
	for position := uint64(0); r.session.Err() == nil; {
		record := b[position%size:]
		word0 := binary.LittleEndian.Uint64(record)
		if word0 == 0 {
			return nil
		}
		word1 := binary.LittleEndian.Uint64(record[layout.RecordLenOffset:])
		h, err := layout.ParseRing(word0, word1, position, size)
		if err != nil {
			return err
		}
		payload := record[layout.RecordHeaderBytes:][:h.Len]
		message := payload
		if h.Kind == layout.KindBlob {
			message = nil // its bytes are not in the image
		}
		if err := r.receive(h, payload, message); err != nil {
			return err
		}
		position = h.Next()
	}
	return nil
}

// readSocket reads the records of one direction of a socket, up to the end of the image.
func (r *imageReader) readSocket(b []byte) error {
	for position := uint64(0); len(b) >= layout.RecordHeaderBytes; {
		h, err := layout.ParseSocket(b, position, false)
		if err != nil {
			return err
		}
		b = b[layout.RecordHeaderBytes:]
		if uint64(len(b)) < uint64(h.Len) {
			return nil
		}
		payload, message := b[:h.Len], b[:h.Len]
		b = b[h.Len:]
		if blob, err := layout.ParseBlob(payload); err == nil && h.Kind == layout.KindBlob {
			length := min(blob.Length, uint64(len(b)))
			message, b = b[:length], b[length:]
		}
		if r.session.Err() != nil {
			return r.session.check.Receive(h, payload) // what the session would have dropped
		}
		if err := r.receive(h, payload, message); err != nil {
			return err
		}
		position = h.Next()
	}
	return nil
}

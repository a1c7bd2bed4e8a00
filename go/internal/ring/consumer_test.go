// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
)

const spec = "../../../spec"

// The sizes and limits of the side that reads the images of record rings (SPEC 10).
const (
	imageRegionBytes = 131072
	imageSlabBytes   = 114688
)

var imageLimits = layout.Limits{MapMax: 262144, MessageMax: 65536, SegmentsMax: 2}

// A ringImage is the image of a whole record ring, with the result that its row of INDEX.md expects
// (SPEC 10).
type ringImage struct {
	file, expected string
	from           uint64
	bytes          []byte
}

// ringImages reads the images of record rings that the INDEX.md of a directory lists.
func ringImages(tb testing.TB, directory string) []ringImage {
	tb.Helper()
	index, err := os.ReadFile(filepath.Join(spec, directory, "INDEX.md"))
	if err != nil {
		tb.Fatal(err)
	}
	var images []ringImage
	for line := range strings.Lines(string(index)) {
		cells := strings.SplitN(line, " | ", 5)
		if len(cells) != 5 || cells[1] != "ring" {
			continue
		}
		file := strings.Trim(cells[0], "| `")
		content, err := os.ReadFile(filepath.Join(spec, directory, file))
		if err != nil {
			tb.Fatal(err)
		}
		from, err := strconv.ParseUint(cells[2], 10, 64)
		if err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
		images = append(images, ringImage{file, strings.Trim(cells[3], "`"), from, content})
	}
	files, err := filepath.Glob(filepath.Join(spec, directory, "ring-*.bin"))
	if err != nil || len(files) != len(images) {
		tb.Fatalf("%s has %d images of rings and %d rows (%v)", directory, len(files), len(images), err)
	}
	return images
}

// consumerOf returns a consumer of a ring with this content, whose next record is at position from.
func consumerOf(content []byte, from uint64) *Consumer {
	memory := mem.Allocate(uint64(len(content)))
	memory.Write(0, content)
	consumer := NewConsumer(memory.Peer(), mem.Allocate(layout.PageBytes))
	consumer.position, consumer.reported = from, from
	return consumer
}

// readChannel reads records with the rules of a channel, until there is none or one breaks a rule.
// It returns the headers of the records that were read without a violation.
func readChannel(tb testing.TB, c *Consumer) ([]layout.Header, error) {
	tb.Helper()
	segments := layout.NewSegments(imageLimits, imageRegionBytes, imageSlabBytes)
	channel := layout.NewChannel(imageLimits, segments)
	var headers []layout.Header
	for {
		before := c.Position()
		header, isThere, err := c.Peek()
		if err != nil || !isThere {
			return headers, err
		}
		payload := make([]byte, header.Len)
		c.Copy(payload, header, 0)
		if err := channel.Receive(header, payload); err != nil {
			return headers, err
		}
		if header.Kind == layout.KindSegment {
			segment, err := layout.ParseSegment(payload)
			if err == nil && segment.Number > 2 {
				return headers, layout.ViolationSegmentMissing
			}
		}
		headers = append(headers, header)
		c.Advance(header)
		if c.IsReportDue() {
			c.Report()
		}
		if c.Position() <= before || len(headers) > int(c.size/layout.SlotBytes) {
			tb.Fatal("the consumer does not come to an end")
		}
	}
}

func TestHostileRingsAreRefused(t *testing.T) {
	images := ringImages(t, "hostile")
	if len(images) < 64 {
		t.Errorf("%d images, want at least 64", len(images))
	}
	for _, image := range images {
		t.Run(image.file, func(t *testing.T) {
			number, err := strconv.ParseUint(image.expected, 10, 8)
			if err != nil {
				t.Fatal(err)
			}
			_, err = readChannel(t, consumerOf(image.bytes, image.from))
			isViolation(t, err, layout.Violation(number))
		})
	}
}

func TestVectorRingsAreRead(t *testing.T) {
	images := ringImages(t, "vectors")
	if len(images) < 10 {
		t.Errorf("%d images, want at least 10", len(images))
	}
	for _, image := range images {
		t.Run(image.file, func(t *testing.T) {
			headers, err := readChannel(t, consumerOf(image.bytes, image.from))
			if err != nil {
				t.Fatal(err)
			}
			var positions, want []string
			for _, header := range headers {
				positions = append(positions, strconv.FormatUint(header.Position, 10))
			}
			for record := range strings.SplitSeq(image.expected, "; ") {
				// The index lists PADs as well, which a consumer skips, so they are left out of the
				// comparison.
				if fields := strings.Fields(record); fields[1] != "Pad" {
					want = append(want, fields[0])
				}
			}
			if strings.Join(positions, " ") != strings.Join(want, " ") {
				t.Errorf("records at %v, want %v", positions, want)
			}
		})
	}
}

func TestViolationIsFinal(t *testing.T) {
	p := newPair(testRing)
	p.memory.Publish(0, layout.Word0(64, layout.KindData))
	_, _, err := p.consumer.Peek()
	isViolation(t, err, layout.ViolationWord)
	p.memory.Publish(0, layout.Word0(0, layout.KindData))
	_, _, again := p.consumer.Peek()
	isViolation(t, again, layout.ViolationWord)
	if !errors.Is(again, err) {
		t.Errorf("another error: %v", again)
	}
}

func TestHeaderIsCheckedCopyOfOneLoad(t *testing.T) {
	p := newPair(testRing)
	p.send(t, "0123456789")
	header, _, err := p.consumer.Peek()
	if err != nil {
		t.Fatal(err)
	}
	// The peer changes the length of the record in the ring, after Peek has checked it.
	p.memory.Store(8, layout.Word1(0xffffffff, 9))
	if header.Len != 10 || len(p.consumer.Payload(header)) != 10 {
		t.Errorf("the length is %d", header.Len)
	}
	p.consumer.Advance(header)
	if p.consumer.Position() != 64 {
		t.Errorf("the next position is %d", p.consumer.Position())
	}
}

func TestReportIsDueAfterEighth(t *testing.T) {
	p := newPair(testRing)
	for range testRing / 64 / 8 {
		if p.consumer.IsReportDue() {
			t.Fatalf("a report is due at %d", p.consumer.Position())
		}
		p.send(t, "x")
		p.next(t)
	}
	if !p.consumer.IsReportDue() {
		t.Errorf("no report is due at %d", p.consumer.Position())
	}
	if !p.consumer.Report() || p.consumer.Report() || p.consumer.IsReportDue() {
		t.Error("a report is news once")
	}
	if found := p.reading.Load(layout.ControlConsumed); found != testRing/8 {
		t.Errorf("consumed is %d", found)
	}
}

// FuzzRing reads any bytes as a record ring, from any position. Each error must be a violation, and
// no record may reach beyond the ring.
func FuzzRing(f *testing.F) {
	for _, directory := range []string{"vectors", "hostile"} {
		for _, image := range ringImages(f, directory) {
			f.Add(image.bytes, image.from)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte, from uint64) {
		whole := make([]byte, testRing)
		copy(whole, content)
		from = from % (1 << 60) &^ (layout.SlotBytes - 1)
		headers, err := readChannel(t, consumerOf(whole, from))
		var violation layout.Violation
		if err != nil && !errors.As(err, &violation) {
			t.Errorf("an error without a number: %v", err)
		}
		for _, header := range headers {
			end := header.Position%testRing + layout.Footprint(uint64(header.Len))
			if end > testRing || layout.Footprint(uint64(header.Len)) > testRing/4 {
				t.Errorf("the record %+v leaves the ring", header)
			}
		}
	})
}

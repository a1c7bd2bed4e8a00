// SPDX-License-Identifier: MIT OR Apache-2.0

package calls

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

// examples are the frames that section 2 of spec/CALLS.md shows, by the names that they have in
// that section.
var examples = map[string]frame{
	"CALL 1, 250 ms left":      {kindCall, 250_000, 1},
	"ONE_WAY 258, no deadline": {kindOneWay, 0, 258},
	"CANCEL 1":                 {kindCancel, 0, 1},
	"ANSWER 1":                 {kindAnswer, 0, 1},
	"ERROR 1, busy":            {kindError, codeBusy, 1},
}

func TestExamplesOfTheSpecification(t *testing.T) {
	text, err := os.ReadFile("../../spec/CALLS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "Golden examples")
	table, _, _ = strings.Cut(table, "\n## ")
	read := 0
	for _, line := range strings.Split(table, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || !strings.Contains(cells[2], "`") {
			continue
		}
		name := strings.TrimSpace(cells[1])
		digits := strings.ReplaceAll(strings.Trim(cells[2], " `"), " ", "")
		header, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		want, isKnown := examples[name]
		if f, err := decode(header); !isKnown || err != nil || f != want {
			t.Errorf("%s is read as %+v, %v; want %+v", name, f, err, want)
		}
		if encoded := want.encode(); !bytes.Equal(encoded[:], header) {
			t.Errorf("%s is written as %x, want %x", name, encoded, header)
		}
		read++
	}
	if read != len(examples) {
		t.Errorf("%d examples are read, want %d", read, len(examples))
	}
}

func TestTimesAreRoundedUp(t *testing.T) {
	for left, want := range map[time.Duration]uint32{
		-time.Second:                        1,
		0:                                   1,
		1:                                   1,
		time.Microsecond:                    1,
		time.Microsecond + 1:                2,
		4000 * time.Second:                  4_000_000_000,
		math.MaxUint32 * time.Microsecond:   math.MaxUint32,
		math.MaxUint32*time.Microsecond + 1: 0,
		5000 * time.Second:                  0,
		math.MaxInt64:                       0,
	} {
		if us := microseconds(left); us != want {
			t.Errorf("%v is %d µs, want %d", left, us, want)
		}
	}
	if us := timeLeft(context.Background()); us != 0 {
		t.Errorf("no deadline is %d µs", us)
	}
}

// FuzzDecode decodes any bytes as a frame. Either the decoder refuses the bytes, or encoding the
// decoded frame gives the same bytes.
func FuzzDecode(f *testing.F) {
	for _, example := range examples {
		header := example.encode()
		f.Add(header[:])
		f.Add(append(header[:], 7))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, message []byte) {
		read, err := decode(message)
		if err != nil {
			if !isViolation(err) {
				t.Errorf("%v is no violation", err)
			}
			return
		}
		if header := read.encode(); !bytes.Equal(header[:], message[:headerBytes]) {
			t.Errorf("%x is written as %x", message, header)
		}
	})
}

// FuzzFrame reads any bytes as a message of calls. If the decoder accepts the message, encoding the
// decoded header must give the same bytes. If it refuses the message, its error must be one of this
// package.
func FuzzFrame(f *testing.F) {
	for _, v := range vectors(f) {
		for _, message := range v.messages {
			f.Add(message)
		}
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		found, err := decode(message)
		var failure *Error
		if err != nil {
			if !errors.As(err, &failure) || found != (frame{}) {
				t.Errorf("%+v with the error %v", found, err)
			}
			return
		}
		if header := found.encode(); !bytes.Equal(header[:], message[:headerBytes]) {
			t.Errorf("%x is written as %x", message[:headerBytes], header)
		}
		if found.id == 0 || found.kind < kindCall || found.kind > kindError {
			t.Errorf("the frame %+v is lawful", found)
		}
	})
}

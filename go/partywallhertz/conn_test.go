// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallhertz

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	hertz "github.com/cloudwego/hertz/pkg/common/errors"
)

// A script is a connection whose reads return the given parts, and then the given error. It keeps
// the bytes that are written.
type script struct {
	net.Conn
	parts   [][]byte
	err     error
	written bytes.Buffer
}

func (s *script) Read(b []byte) (int, error) {
	if len(s.parts) == 0 {
		return 0, s.err
	}
	n := copy(b, s.parts[0])
	if s.parts[0] = s.parts[0][n:]; len(s.parts[0]) == 0 {
		s.parts = s.parts[1:]
	}
	return n, nil
}

func (s *script) Write(b []byte) (int, error) { return s.written.Write(b) }

// counted returns n bytes, the values of which count upwards from first.
func counted(first, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte((first + i) * 31 >> 2)
	}
	return b
}

func TestPeekedBytesStayUntilRelease(t *testing.T) {
	all := counted(0, 300_000)
	c := newConn(&script{parts: [][]byte{all[:10], all[10:5000], all[5000:]}, err: io.EOF})
	var peeked [][]byte
	sizes := []int{1, 9, 20, 6000, 1, 100_000, 4096}
	for _, size := range sizes {
		b, err := c.Peek(size)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Skip(size); err != nil {
			t.Fatal(err)
		}
		peeked = append(peeked, b)
	}
	start := 0
	for i, b := range peeked {
		if !bytes.Equal(b, all[start:start+sizes[i]]) {
			t.Errorf("slice %d of %d bytes has changed", i, sizes[i])
		}
		start += sizes[i]
	}
	rest, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(rest, all[start:]) {
		t.Errorf("%d bytes follow, want %d: %v", len(rest), len(all)-start, err)
	}
}

func TestReleaseKeepsUnreadBytes(t *testing.T) {
	all := counted(0, 20_000)
	c := newConn(&script{parts: [][]byte{all[:6000], all[6000:]}, err: io.EOF})
	for start, step := 0, 1; start+step <= len(all); start, step = start+step, step*2 {
		b, err := c.ReadBinary(step)
		if err != nil || !bytes.Equal(b, all[start:start+step]) {
			t.Fatalf("bytes %d to %d differ: %v", start, start+step, err)
		}
		if err := c.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPeekBeyondTheEndReturnsWhatThereIs(t *testing.T) {
	c := newConn(&script{parts: [][]byte{[]byte("abc")}, err: io.EOF})
	for range 2 {
		if b, err := c.Peek(4); string(b) != "abc" || err != io.EOF {
			t.Errorf("Peek returns %q, %v", b, err)
		}
	}
	if err := c.Skip(4); err == nil {
		t.Error("more is skipped than there is")
	}
	if b, err := c.ReadByte(); b != 'a' || err != nil || c.Len() != 2 {
		t.Errorf("ReadByte returns %q, %v; %d bytes are left", b, err, c.Len())
	}
	if b, err := c.ReadBinary(3); err != io.EOF {
		t.Errorf("ReadBinary returns %q, %v", b, err)
	}
}

func TestFlushSendsInOrder(t *testing.T) {
	s := &script{}
	c := newConn(s)
	var want []byte
	var rooms, fills [][]byte
	for i, size := range []int{1, 100, 4000, 10, 5000, 3, 4096, 0, 70_000, 2} {
		part := counted(i, size)
		want = append(want, part...)
		if i%2 == 0 {
			if n, err := c.WriteBinary(part); n != size || err != nil {
				t.Fatalf("WriteBinary returns %d, %v", n, err)
			}
			continue
		}
		room, err := c.Malloc(size)
		if err != nil || len(room) != size {
			t.Fatalf("Malloc(%d) returns %d bytes, %v", size, len(room), err)
		}
		rooms, fills = append(rooms, room), append(fills, part)
	}
	for i, room := range rooms { // only now: room stays valid until Flush
		copy(room, fills[i])
	}
	if s.written.Len() != 0 {
		t.Error("bytes are sent before Flush")
	}
	if _, err := c.Write([]byte("end")); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(s.written.Bytes(), append(want, "end"...)) {
		t.Error("the bytes differ from those written")
	}
	s.written.Reset()
	if err := c.Flush(); err != nil || s.written.Len() != 0 {
		t.Errorf("a second Flush sends %d bytes, %v", s.written.Len(), err)
	}
}

// The buffers of a connection are used again for the next message: at most one buffer is made for
// each message. After a Flush, memory of the caller is not written.
func TestBuffersOfOneMessageAreUsedForTheNext(t *testing.T) {
	s := &script{}
	c := newConn(s)
	own := counted(1, bufferBytes)
	for i := range 3 {
		if _, err := c.WriteBinary(own); err != nil {
			t.Fatal(err)
		}
		room, err := c.Malloc(100)
		if err != nil {
			t.Fatal(err)
		}
		copy(room, counted(i, 100))
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		if want := append(counted(1, bufferBytes), counted(i, 100)...); !bytes.Equal(s.written.Bytes(), want) {
			t.Errorf("flush %d sends other bytes than were written", i)
		}
		s.written.Reset()
	}
	if !bytes.Equal(own, counted(1, bufferBytes)) {
		t.Error("a later message is written over the caller's bytes")
	}
	// The next response has a header and a body, and fits into the buffers of the response before
	// it.
	message := counted(2, 100+65_536)
	read := func() {
		s.parts = [][]byte{message}
		for _, size := range []int{100, 65_536} {
			if b, err := c.Peek(size); err != nil || len(b) != size {
				t.Fatal(len(b), err)
			}
			if err := c.Skip(size); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Release(); err != nil {
			t.Fatal(err)
		}
	}
	read()
	before := cap(c.in)
	read()
	read()
	if after := cap(c.in); after != before {
		t.Errorf("the buffer of %d bytes is replaced by one of %d", before, after)
	}
}

func TestErrorsAreThoseOfHertz(t *testing.T) {
	c := newConn(&script{err: &net.OpError{Op: "read", Err: syscall.ECONNRESET}})
	if _, err := c.Peek(1); err != syscall.ECONNRESET {
		t.Errorf("a reset is %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); err != syscall.ECONNRESET {
		t.Errorf("a reset is %v", err)
	}
	other := errors.New("other")
	for err, want := range map[error]error{
		&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}: hertz.ErrTimeout,
		&net.OpError{Op: "write", Err: syscall.EPIPE}:         hertz.ErrConnectionClosed,
		&net.OpError{Op: "write", Err: net.ErrClosed}:         hertz.ErrConnectionClosed,
		other: other,
	} {
		if got := c.ToHertzError(err); got != want {
			t.Errorf("%v becomes %v, want %v", err, got, want)
		}
	}
	if !deadline(0).IsZero() || !deadline(time.Hour).After(time.Now()) {
		t.Error("a time-out is not from now on")
	}
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallshmipc

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"

	partywall "partywall.test/go"
)

// A reader is the receiving buffer of a stream.
//
//	buf  | returned, or released | unread       | free     |
//	     0                       read           len(buf)   cap(buf)
//
// Slices that were returned to the caller stay valid until ReleasePreviousRead, because a buffer
// that is too small is replaced, and its bytes are never moved.
type reader struct {
	stream   *partywall.Stream
	buf      []byte
	read     int
	isPinned bool        // slices of buf may be in use
	isOver   atomic.Bool // nothing more comes
}

var _ BufferReader = (*reader)(nil)

// Len returns the number of received bytes that are unread.
func (r *reader) Len() int { return len(r.buf) - r.read }

// Peek waits for size bytes of the stream, and returns them without reading them.
func (r *reader) Peek(size int) ([]byte, error) {
	for r.Len() < size {
		if err := r.fill(size); err != nil {
			return nil, err
		}
	}
	r.isPinned = true
	return r.buf[r.read : r.read+size : r.read+size], nil
}

// ReadBytes waits for size bytes of the stream, and returns them without a copy.
func (r *reader) ReadBytes(size int) ([]byte, error) {
	b, err := r.Peek(size)
	r.read += len(b)
	return b, err
}

// ReadByte waits for a byte of the stream, and returns it.
func (r *reader) ReadByte() (byte, error) {
	b, err := r.ReadBytes(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// ReadString waits for size bytes of the stream, and returns a copy of them as a string.
func (r *reader) ReadString(size int) (string, error) {
	b, err := r.ReadBytes(size)
	return string(b), err
}

// Discard waits for size bytes of the stream, and drops them.
func (r *reader) Discard(size int) (int, error) {
	b, err := r.ReadBytes(size)
	return len(b), err
}

// ReleasePreviousRead makes the slices invalid that reading has returned before.
func (r *reader) ReleasePreviousRead() {
	r.isPinned = false
	if r.Len() > 0 {
		return
	}
	r.buf, r.read = r.buf[:0], 0
	if cap(r.buf) > keptBytes {
		r.buf = nil
	}
}

// readInto copies unread bytes of the buffer to b. If the buffer has none, it reads from the
// stream into b.
func (r *reader) readInto(b []byte) (int, error) {
	if r.Len() == 0 {
		n, err := r.stream.Read(b)
		return n, r.note(err)
	}
	n := copy(b, r.buf[r.read:])
	r.read += n
	return n, nil
}

// fill receives bytes of the stream into the buffer, which is replaced if it has no room for size
// unread bytes.
func (r *reader) fill(size int) error {
	if cap(r.buf)-r.read < size {
		larger := r.buf[:0]
		if r.isPinned || cap(r.buf) < size {
			larger = make([]byte, 0, max(size, 2*r.Len(), bufferBytes))
		}
		r.buf, r.read = append(larger, r.buf[r.read:]...), 0
	}
	n, err := r.stream.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf = r.buf[:len(r.buf)+n]
	if n > 0 {
		return nil
	}
	return r.note(err)
}

// note returns the error of shmipc-go that corresponds to an error of the stream. It also records
// whether reading can never succeed again.
func (r *reader) note(err error) error {
	err = shmipcError(err)
	if err != nil && err != ErrTimeout {
		r.isOver.Store(true)
	}
	return err
}

// A writer is the sending buffer of a stream: chunks in the order of writing. The last chunk may
// have room. A slice that Reserve has returned stays valid until Flush.
type writer struct {
	stream *partywall.Stream
	chunks [][]byte
	size   int
}

var _ BufferWriter = (*writer)(nil)

// Len returns the number of bytes that the next Flush sends.
func (w *writer) Len() int { return w.size }

// Reserve returns size bytes for the caller to fill, which the next Flush sends.
func (w *writer) Reserve(size int) ([]byte, error) {
	last := len(w.chunks) - 1
	if last < 0 || cap(w.chunks[last])-len(w.chunks[last]) < size {
		w.chunks = append(w.chunks, make([]byte, 0, max(size, bufferBytes)))
		last++
	}
	chunk := w.chunks[last]
	start := len(chunk)
	w.chunks[last] = chunk[:start+size]
	w.size += size
	return chunk[start : start+size : start+size], nil
}

// WriteBytes copies b into the sending buffer.
func (w *writer) WriteBytes(b []byte) (int, error) {
	room, err := w.Reserve(len(b))
	return copy(room, b), err
}

// WriteByte copies a byte into the sending buffer.
func (w *writer) WriteByte(b byte) error {
	_, err := w.WriteBytes([]byte{b})
	return err
}

// WriteString copies s into the sending buffer.
func (w *writer) WriteString(s string) error {
	room, err := w.Reserve(len(s))
	copy(room, s)
	return err
}

// flush sends the bytes of the buffer on the stream. After an error the remaining bytes are
// dropped.
func (w *writer) flush() error {
	var err error
	for _, chunk := range w.chunks {
		if err == nil && len(chunk) > 0 {
			_, err = w.stream.Write(chunk)
		}
	}
	w.size = 0
	if len(w.chunks) != 1 || cap(w.chunks[0]) > keptBytes {
		w.chunks = nil
	} else {
		w.chunks[0] = w.chunks[0][:0]
	}
	return shmipcError(err)
}

// shmipcError returns the error of shmipc-go that corresponds to an error of a partywall stream or
// session.
func shmipcError(err error) error {
	switch {
	case err == nil:
		return nil
	case err == io.EOF:
		return ErrEndOfStream
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrTimeout
	}
	var opError *net.OpError
	if errors.As(err, &opError) {
		return ErrStreamClosed
	}
	return ErrSessionShutdown
}

const (
	// bufferBytes is the least size in bytes of a stream's buffer.
	bufferBytes = 4096
	// keptBytes is the size in bytes of the largest buffer that a stream keeps for later messages.
	keptBytes = 4 << 20
)

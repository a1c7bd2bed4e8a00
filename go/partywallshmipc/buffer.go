// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallshmipc

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"

	partywall "partywall.test/go"
)

// A reader is the receiving buffer of a stream.
//
//	buf  | returned, or released | unread       | free     |
//	     0                       read           len(buf)   cap(buf)
//
// The buffer is either private memory of this process, into which short messages are copied, or a
// long message in the place where it lies, which has no free bytes. The bytes that were returned to
// the caller stay valid until ReleasePreviousRead, because a buffer that is too small is replaced,
// and its bytes do not move. A message whose bytes were only copied to the caller is given back to
// the peer once it is read.
type reader struct {
	stream    *partywall.Stream
	borrowed  *borrowed
	buf       []byte
	read      int
	isMessage bool        // buf is the last message of borrowed
	own       []byte      // memory of the reader, which has no use while buf is a message
	isEager   bool        // the application wants all bytes that have come
	isPinned  bool        // the caller may use slices of buf
	isOver    atomic.Bool // nothing more comes
}

// borrowed is the memory of the session that a stream uses: received messages, and memory for
// messages to send. The stream gives the memory back. Once the stream is closed or its session has
// ended, and the program has forgotten the stream, the garbage collector does.
type borrowed struct {
	messages []*partywall.Message // of the reader, until ReleasePreviousRead at the latest
	size     int                  // of the messages in bytes
	parts    []part               // of the writer, until Flush
}

func (b *borrowed) release() {
	b.releaseFirst(len(b.messages))
	for _, part := range b.parts {
		if part.memory != nil {
			part.memory.Abort()
		}
	}
	b.parts = nil
}

// releaseFirst gives the memory of the first count received messages back to the session.
func (b *borrowed) releaseFirst(count int) { b.releaseMessages(0, count) }

// releaseLast gives the memory of the last received message back to the session.
func (b *borrowed) releaseLast() { b.releaseMessages(len(b.messages)-1, len(b.messages)) }

func (b *borrowed) releaseMessages(from, to int) {
	for _, message := range b.messages[from:to] {
		b.size -= message.Len()
		message.Release()
	}
	b.messages = slices.Delete(b.messages, from, to)
}

var _ BufferReader = (*reader)(nil)

// Len returns the number of received bytes that are unread.
func (r *reader) Len() int { return len(r.buf) - r.read }

// await waits until size bytes of the stream are unread in the buffer.
func (r *reader) await(size int) error {
	for r.Len() < size {
		if err := r.fill(size); err != nil {
			return err
		}
	}
	return nil
}

// Peek waits for size bytes of the stream, and returns them without reading them.
func (r *reader) Peek(size int) ([]byte, error) {
	if err := r.await(size); err != nil {
		return nil, err
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

func (r *reader) ReadByte() (byte, error) {
	if err := r.await(1); err != nil {
		return 0, err
	}
	b := r.buf[r.read]
	r.skip(1)
	return b, nil
}

// ReadString waits for size bytes of the stream, and returns a copy of them as a string.
func (r *reader) ReadString(size int) (string, error) {
	if err := r.await(size); err != nil {
		return "", err
	}
	text := string(r.buf[r.read : r.read+size])
	r.skip(size)
	return text, nil
}

// Discard waits for size bytes of the stream, and drops them.
func (r *reader) Discard(size int) (int, error) {
	if err := r.await(size); err != nil {
		return 0, err
	}
	r.skip(size)
	return size, nil
}

// skip counts size bytes of the buffer as read. If they are the last of a message whose bytes were
// only copied to the caller, skip gives the memory of the message back to the peer.
func (r *reader) skip(size int) {
	r.read += size
	if r.Len() == 0 && r.isMessage && !r.isPinned {
		r.buf, r.read, r.own, r.isMessage = r.own[:0], 0, nil, false
		r.borrowed.releaseLast()
	}
}

// ReleasePreviousRead ends the use of the bytes that earlier calls of the reading methods have
// returned.
func (r *reader) ReleasePreviousRead() {
	r.isPinned = false
	count := len(r.borrowed.messages)
	if r.Len() > 0 {
		if r.isMessage {
			count--
		}
		r.borrowed.releaseFirst(count)
		return
	}
	if r.isMessage {
		r.buf, r.own, r.isMessage = r.own, nil, false
	}
	r.buf, r.read = r.buf[:0], 0
	if cap(r.buf) > keptBytes {
		r.buf = nil
	}
	r.borrowed.releaseFirst(count)
}

// readInto copies unread bytes of the buffer to b. If the buffer has none, it reads from the
// stream into b.
func (r *reader) readInto(b []byte) (int, error) {
	if r.Len() == 0 {
		n, err := r.stream.Read(b)
		return n, r.note(err)
	}
	n := copy(b, r.buf[r.read:])
	r.skip(n)
	return n, nil
}

// fill receives bytes of the stream into a buffer that is large enough for size unread bytes. If
// the next message is long and has at least as many bytes, that message itself becomes the buffer.
func (r *reader) fill(size int) error {
	isLong := size >= messageMin || r.isEager
	if isLong && r.Len() == 0 && r.borrowed.size < borrowedMax {
		if _, err := r.stream.Peek(1); err != nil {
			return r.note(err)
		}
		n := r.stream.Buffered()
		if n >= max(size, messageMin) && r.borrowed.size+n <= borrowedMax {
			return r.take()
		}
	}
	if r.isMessage || cap(r.buf)-r.read < size {
		r.replace(size)
	}
	n, err := r.stream.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf = r.buf[:len(r.buf)+n]
	if n > 0 {
		return nil
	}
	return r.note(err)
}

// take makes the next message the reader's buffer, without a copy. All bytes of the former buffer
// must have been read.
func (r *reader) take() error {
	message, err := r.stream.ReadMessage()
	if err != nil {
		return r.note(err)
	}
	switch {
	case r.isMessage:
	case r.isPinned:
		r.own = nil
	default:
		r.own = r.buf
	}
	r.borrowed.messages = append(r.borrowed.messages, message)
	r.borrowed.size += message.Len()
	r.buf, r.read, r.isMessage, r.isPinned = message.Bytes(), 0, true, false
	return nil
}

// replace moves the unread bytes to the start of a new buffer of at least size bytes.
func (r *reader) replace(size int) {
	larger := r.buf[:0]
	if r.isMessage {
		larger = r.own[:0]
	} else if r.isPinned {
		larger = nil
	}
	if cap(larger) < size {
		larger = make([]byte, 0, max(size, 2*r.Len(), bufferBytes))
	}
	r.buf, r.read = append(larger, r.buf[r.read:]...), 0
	if r.isMessage && !r.isPinned {
		r.borrowed.releaseLast()
	}
	r.own, r.isMessage, r.isPinned = nil, false, false
}

// note returns the error of shmipc-go that corresponds to an error of the stream. It also notes
// whether reading can never succeed again.
func (r *reader) note(err error) error {
	err = shmipcError(err)
	if err != nil && err != ErrTimeout {
		r.isOver.Store(true)
	}
	return err
}

// A writer is the sending buffer of a stream: parts in the order of writing. The last part may have
// free bytes at its end. The memory that Reserve returns stays valid until Flush. It is private
// memory of this process, because the application may still write into it after the end of the
// session.
type writer struct {
	stream   *partywall.Stream
	borrowed *borrowed // has the parts
	chunk    []byte    // memory of the writer for a later part
	size     int
}

// A part of a sending buffer is private memory of this process, or shared memory in which the peer
// will read it.
type part struct {
	bytes  []byte
	memory *partywall.Reservation // in which the bytes lie, or nil
}

var _ BufferWriter = (*writer)(nil)

// Len returns the number of bytes that the next Flush sends.
func (w *writer) Len() int { return w.size }

// Reserve returns size bytes for the caller to fill, which the next Flush sends.
func (w *writer) Reserve(size int) ([]byte, error) {
	parts := w.borrowed.parts
	last := len(parts) - 1
	if last < 0 || parts[last].memory != nil || cap(parts[last].bytes)-len(parts[last].bytes) < size {
		chunk := w.chunk[:0]
		w.chunk = nil
		if cap(chunk) < max(size, 1) {
			chunk = make([]byte, 0, max(size, bufferBytes))
		}
		parts = append(parts, part{bytes: chunk})
		last++
	}
	chunk := parts[last].bytes
	start := len(chunk)
	parts[last].bytes = chunk[:start+size]
	w.borrowed.parts = parts
	w.size += size
	return chunk[start : start+size : start+size], nil
}

// room returns memory for size bytes that the writer fills itself. For many bytes that is shared
// memory in which the peer will read them, if such memory is free; otherwise it is private memory.
func (w *writer) room(size int) ([]byte, error) {
	if size < messageMin {
		return w.Reserve(size)
	}
	memory, err := w.stream.Reserve(size)
	if err != nil {
		return w.Reserve(size) // the error is that of Flush, too
	}
	w.borrowed.parts = append(w.borrowed.parts, part{memory.Bytes(), memory})
	w.size += size
	return memory.Bytes(), nil
}

func (w *writer) WriteBytes(b []byte) (int, error) { return writeParts(w, b) }

func (w *writer) WriteByte(b byte) error {
	_, err := w.WriteBytes([]byte{b})
	return err
}

func (w *writer) WriteString(s string) error {
	_, err := writeParts(w, s)
	return err
}

// writeParts copies b into the sending buffer, in parts of at most messageMax bytes.
func writeParts[B []byte | string](w *writer, b B) (int, error) {
	for written := 0; ; {
		room, err := w.room(min(len(b)-written, messageMax))
		if err != nil {
			return written, err
		}
		written += copy(room, b[written:])
		if written == len(b) {
			return written, nil
		}
	}
}

// flush sends the bytes of the sending buffer. After an error it drops the rest of them.
func (w *writer) flush() error {
	var err error
	parts := w.borrowed.parts
	for i, p := range parts {
		parts[i] = part{}
		switch {
		case p.memory != nil && err == nil:
			err = sentError(p.memory.Commit(len(p.bytes)))
		case p.memory != nil:
			p.memory.Abort()
		case len(p.bytes) > 0 && err == nil:
			_, err = w.stream.Write(p.bytes)
			err = shmipcError(err)
		}
		if p.memory == nil && cap(p.bytes) <= keptBytes {
			w.chunk = p.bytes[:0]
		}
	}
	w.borrowed.parts, w.size = parts[:0], 0
	return err
}

// sentError returns the error of shmipc-go that corresponds to an error of a reservation.
func sentError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrTimeout
	}
	return ErrStreamClosed
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
	// messageMin and messageMax are the least and the greatest size in bytes of a message that is
	// written and read where it lies.
	messageMin, messageMax = 16 << 10, 4 << 20
	// borrowedMax bounds the messages that a reader holds where they lie, in bytes together. The
	// reader copies further messages.
	borrowedMax = 8 << 20
)

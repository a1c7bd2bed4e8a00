// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"io"
	"net"
	"slices"

	"partywall.test/go/internal/session"
)

// Peek returns the next n bytes of the stream without reading them, and waits until they have come.
// If the error is not nil, fewer bytes are returned. The bytes may lie in the peer's memory, and
// are valid until the next call that reads, or Close.
func (s *Stream) Peek(n int) ([]byte, error) {
	l := limit{deadline: &s.readDeadline}
	if err := s.receiving.take(l); err != nil {
		return nil, err
	}
	defer s.receiving.give()
	if s.isClosed.Load() {
		s.release()
		return nil, net.ErrClosed
	}
	for len(s.rest.Bytes) < n {
		m, err := s.next(l)
		if err != nil {
			return s.rest.Bytes, err
		}
		s.append(m)
	}
	return s.rest.Bytes[:n], nil
}

// append adds a received message to the unread bytes of the stream, without a copy if there are
// none. The caller has the right to receive on the stream.
func (s *Stream) append(m session.Message) {
	if len(s.rest.Bytes) == 0 {
		s.release()
		s.rest = m
		return
	}
	if len(m.Bytes) > 0 {
		joined := make([]byte, 0, len(s.rest.Bytes)+len(m.Bytes))
		joined = append(append(joined, s.rest.Bytes...), m.Bytes...)
		s.release()
		s.rest = session.Message{Bytes: joined}
	}
	Message{m, s.session}.Release()
}

// Take waits until bytes of the stream have come, and returns the unread bytes of one message. The
// caller releases them.
func (s *Stream) Take() (Message, error) {
	l := limit{deadline: &s.readDeadline}
	if err := s.receiving.take(l); err != nil {
		return Message{}, err
	}
	defer s.receiving.give()
	if err := s.refill(l); err != nil {
		return Message{}, err
	}
	taken := Message{s.rest, s.session}
	s.rest = session.Message{}
	return taken, nil
}

// Buffered returns the number of bytes that [Stream.Peek] can return without receiving another
// message.
func (s *Stream) Buffered() int {
	if s.receiving.take(limit{deadline: &s.readDeadline}) != nil {
		return 0
	}
	defer s.receiving.give()
	return len(s.rest.Bytes)
}

// Discard skips the next n bytes of the stream, and waits until they have come. It returns the
// number of skipped bytes, which is less than n only with an error.
func (s *Stream) Discard(n int) (int, error) {
	l := limit{deadline: &s.readDeadline}
	if err := s.receiving.take(l); err != nil {
		return 0, err
	}
	defer s.receiving.give()
	skipped := 0
	for skipped < n || s.isClosed.Load() {
		if err := s.refill(l); err != nil {
			return skipped, err
		}
		part := min(n-skipped, len(s.rest.Bytes))
		s.skip(part)
		skipped += part
	}
	return skipped, nil
}

// refill waits for the next message of the stream if all received bytes were read. The caller has
// the right to receive on the stream.
func (s *Stream) refill(l limit) error {
	for len(s.rest.Bytes) == 0 || s.isClosed.Load() {
		s.release()
		m, err := s.next(l)
		if err != nil {
			return err
		}
		s.rest = m
	}
	return nil
}

// skip counts n received bytes as read. It releases the memory of the message once its last byte is
// read.
func (s *Stream) skip(n int) {
	s.rest.Bytes = s.rest.Bytes[n:]
	if len(s.rest.Bytes) == 0 || s.isClosed.Load() {
		s.release()
	}
}

// Forward writes all bytes of the stream to w until the peer's end, which is no error. Each message
// is one write, from the memory in which it came. Bytes that w does not accept stay unread. The
// error of w is the second one, and all other errors are the first.
func (s *Stream) Forward(w io.Writer) (n int64, err, errOfWriter error) {
	l := limit{deadline: &s.readDeadline}
	if err := s.receiving.take(l); err != nil {
		return 0, err, nil
	}
	defer s.receiving.give()
	var total int64
	for {
		if err := s.refill(l); err == io.EOF {
			return total, nil, nil
		} else if err != nil {
			return total, err, nil
		}
		n, err := w.Write(s.rest.Bytes)
		if n < 0 || n > len(s.rest.Bytes) {
			panic("mux: a writer counts bytes that it was not given")
		}
		isShort := n < len(s.rest.Bytes)
		s.skip(n)
		total += int64(n)
		switch {
		case err != nil:
			return total, nil, err
		case isShort:
			return total, nil, io.ErrShortWrite
		}
	}
}

// WriteBuffers sends the bytes of all buffers in their order, as Write would send their
// concatenation; several short buffers share a message. It returns the number of bytes that were
// sent.
func (s *Stream) WriteBuffers(buffers [][]byte) (int64, error) {
	l := limit{deadline: &s.writeDeadline}
	if err := s.sending.take(l); err != nil {
		return 0, err
	}
	defer s.sending.give()
	unsent := parts{buffers: buffers}
	var written int
	for size := unsent.size(); written < size; {
		n := s.cut(size - written)
		if err := s.sendParts(l, &unsent, n); err != nil {
			return int64(written), err
		}
		written += n
	}
	return int64(written), s.checkWrite(written)
}

// sendParts sends the next n bytes of the buffers as one message. The bytes are copied once if the
// message goes in a block, or if they lie in one buffer; otherwise they are first collected in
// private memory, and so copied twice. The caller has the right to send on the stream.
func (s *Stream) sendParts(l limit, unsent *parts, n int) error {
	if b := unsent.next(n); b != nil {
		return s.send(l, b)
	}
	if memory := s.reserveNow(n); memory != nil {
		unsent.copyTo(memory.Bytes)
		return s.sendOutgoing(l, Outgoing{
			Stream: s.state.Number(), Payload: memory.Bytes, Reserved: memory,
		})
	}
	s.gathered = slices.Grow(s.gathered[:0], n)[:n]
	unsent.copyTo(s.gathered)
	return s.send(l, s.gathered)
}

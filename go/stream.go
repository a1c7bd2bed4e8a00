// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"context"
	"io"
	"net"
	"time"

	"partywall.test/go/internal/mux"
)

// A Stream is a pipe of messages in each direction, or of bytes, within a [Session]. Which of the
// two, both applications have to know: Send and RecvMessage are for messages, Read and Write for
// bytes. It is a [net.Conn].
//
// Any number of goroutines may use a stream. Those that send wait for each other, as those do that
// receive. A stream is closed when it is of no more use, also after its end.
type Stream struct {
	stream  *mux.Stream
	session *Session
	isOnly  bool // the session is of no use without the stream
}

var (
	_ net.Conn    = (*Stream)(nil)
	_ io.WriterTo = (*Stream)(nil)
)

// Session returns the session of the stream.
func (s *Stream) Session() *Session { return s.session }

// Peer returns the process at the other end.
func (s *Stream) Peer() Peer { return s.session.Peer() }

// Transport returns what carries the stream.
func (s *Stream) Transport() Transport { return s.session.Transport() }

// Metadata returns what the opener said about the stream.
func (s *Stream) Metadata() []byte { return s.stream.Metadata() }

// Number returns the number of the stream in its session. A later stream may have it again.
func (s *Stream) Number() uint32 { return s.stream.Number() }

// Send sends a message. Once it returns without an error, the peer receives the message over shared
// memory even if this process dies. It waits for room, and for the peer's application to take
// earlier messages. If the deadline passes, the message is not sent.
func (s *Stream) Send(message []byte) error {
	return wrap("send", s.stream.Send(context.Background(), message))
}

// SendParts sends one message that consists of the parts, as Send does, until ctx ends: then the
// message is not sent, and the error is that of ctx. A long message is copied once, into the memory
// where the peer reads it.
func (s *Stream) SendParts(ctx context.Context, parts ...[]byte) error {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	if size <= shortPartsMax {
		var short [shortPartsMax]byte
		gather(short[:], parts)
		return wrap("send", s.stream.Send(ctx, short[:size]))
	}
	memory, err := s.stream.Reserve(size)
	if err != nil {
		return wrap("send", err)
	}
	gather(memory.Bytes(), parts)
	return wrap("send", memory.Commit(ctx, size))
}

// shortPartsMax is the size in bytes of the longest message for which SendParts reserves no memory.
const shortPartsMax = 512

// gather copies the parts one after the other.
func gather(into []byte, parts [][]byte) {
	for _, part := range parts {
		into = into[copy(into, part):]
	}
}

// RecvMessage receives a message, which the caller releases. The error is [io.EOF] once the peer
// has ended its direction and every message was received.
func (s *Stream) RecvMessage() (*Message, error) {
	message, err := s.stream.Recv(context.Background())
	if err != nil {
		return nil, wrap("recv", err)
	}
	return received(message.Wire()), nil
}

// Read reads bytes. The error is [io.EOF] once the peer has ended its direction and all was read; a
// peer that resets the stream, dies or closes the session before is another error. Errors but
// io.EOF are a [*net.OpError] around an [*Error].
func (s *Stream) Read(b []byte) (int, error) {
	n, err := s.stream.Read(b)
	return n, s.opError("read", err)
}

// Write writes bytes. It returns once the last of them are where the peer reads them.
func (s *Stream) Write(b []byte) (int, error) {
	n, err := s.stream.Write(b)
	return n, s.opError("write", err)
}

// Peek returns the next n bytes and leaves them unread, waiting until they have come; with an error
// there are fewer. They may lie in the peer's memory, and are valid until the next call that reads,
// or Close.
func (s *Stream) Peek(n int) ([]byte, error) {
	b, err := s.stream.Peek(n)
	return b, s.opError("read", err)
}

// Buffered returns how many bytes Peek returns without looking for more.
func (s *Stream) Buffered() int { return s.stream.Buffered() }

// Discard skips the next n bytes, waiting until they have come. It returns how many it has skipped,
// which are fewer only with an error.
func (s *Stream) Discard(n int) (int, error) {
	skipped, err := s.stream.Discard(n)
	return skipped, s.opError("read", err)
}

// WriteTo writes all bytes to w until the peer has ended its direction, and copies none itself. So
// [io.Copy] from a stream needs no buffer. Bytes that w does not take stay unread.
func (s *Stream) WriteTo(w io.Writer) (int64, error) {
	n, errOfStream, errOfWriter := s.stream.Forward(w)
	if errOfWriter != nil {
		return n, errOfWriter
	}
	return n, s.opError("read", errOfStream)
}

// WriteBuffers writes the bytes of all buffers, and leaves the buffers as they are. Short ones
// share a message, which [net.Buffers] cannot do with a stream.
func (s *Stream) WriteBuffers(buffers ...[]byte) (int64, error) {
	n, err := s.stream.WriteBuffers(buffers)
	return n, s.opError("write", err)
}

// Reserve returns memory for a message of n bytes, without waiting. The message is one for
// RecvMessage of the peer; to a Read of the peer its bytes are the next ones.
func (s *Stream) Reserve(n int) (*Reservation, error) {
	r, err := s.stream.Reserve(n)
	if err != nil {
		return nil, wrap("reserve", err)
	}
	return &Reservation{reserved: streamReserved{r}}, nil
}

// opError returns the error of an operation of [net.Conn].
func (s *Stream) opError(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{
		Op: op, Net: networkName, Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: wrap(op, err),
	}
}

// SendErr returns why nothing more can be sent, or nil. A pool of idle streams asks it: the peer
// may have closed the stream, or died.
func (s *Stream) SendErr() error { return wrap("send", s.stream.SendErr()) }

// CloseWrite tells the peer that nothing more comes. This side still receives.
func (s *Stream) CloseWrite() error {
	s.stream.CloseWrite()
	return nil
}

// CloseRead stops receiving, and drops what is unread. The peer's sends fail.
func (s *Stream) CloseRead() error {
	s.stream.Stop(0)
	return nil
}

// Stop is CloseRead with a code for the peer's application, less than 0xffffff00.
func (s *Stream) Stop(code uint32) { s.stream.Stop(applicationCode(code)) }

// Reset ends the sending without a good end, and gives up messages under way. The code is for the
// peer's application, and less than 0xffffff00.
func (s *Stream) Reset(code uint32) { s.stream.Reset(applicationCode(code)) }

// Close ends both directions. The peer receives everything that was sent; what is unread is
// dropped. Calls that wait return an error that wraps [net.ErrClosed].
func (s *Stream) Close() error {
	if s.stream.Close() != nil {
		return s.opError("close", net.ErrClosed)
	}
	if s.isOnly {
		return s.session.Close()
	}
	return nil
}

// LocalAddr returns the address of the session's listener.
func (s *Stream) LocalAddr() net.Addr { return s.session.address }

// RemoteAddr returns the address of the session's listener. [Stream.Peer] says who the peer is.
func (s *Stream) RemoteAddr() net.Addr { return s.session.address }

// SetDeadline sets both deadlines.
func (s *Stream) SetDeadline(t time.Time) error {
	return s.opError("set", s.stream.SetDeadline(t))
}

// SetReadDeadline sets the time at which receiving fails, also for calls that wait already. The
// zero time means never.
func (s *Stream) SetReadDeadline(t time.Time) error {
	return s.opError("set", s.stream.SetReadDeadline(t))
}

// SetWriteDeadline sets the time at which sending fails, also for calls that wait already. The zero
// time means never.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	return s.opError("set", s.stream.SetWriteDeadline(t))
}

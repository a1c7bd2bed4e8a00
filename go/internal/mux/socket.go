// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/session"
)

// A Socket is the [Conn] of a session over a Unix or a TCP socket (SPEC 8).
//
//	WriteRecord ──▶ unsent bytes ──▶ the socket       as much as it takes at once
//	                     └─ a goroutine, while some are left
//
// Only whole records join the unsent bytes, and only while those are fewer than unsentMax. So a
// message of any length leaves room for records of other streams between its fragments.
type Socket struct {
	conn       net.Conn
	raw        syscall.RawConn
	messageMax uint64 // of this side

	reading    sync.Mutex // held while a record is read
	reader     *bufio.Reader
	readAt     uint64 // position of the next record to read
	payload    []byte // of the last record that is no message
	isFinished bool   // CLOSE_WRITE of the session was read

	mu        sync.Mutex // guards what follows
	writeAt   uint64     // position of the next record to write
	unsent    []byte
	isSending bool          // a goroutine sends what is unsent
	room      chan struct{} // closed when unsent bytes were sent, or cannot be
	err       error         // why nothing more can be sent
	closing   bool          // the last record is among the unsent bytes, or was sent

	once sync.Once // of Close
}

// NewSocket returns the connection over a socket whose handshake is over. The bytes early came with
// its last frame. No message of the peer exceeds messageMax bytes.
func NewSocket(conn net.Conn, early []byte, messageMax uint64) (*Socket, error) {
	source, isSocket := conn.(syscall.Conn)
	if !isSocket {
		return nil, fmt.Errorf("%T is no socket", conn)
	}
	raw, err := source.SyscallConn()
	if err != nil {
		return nil, err
	}
	reader := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(early), conn), readBytes)
	return &Socket{conn: conn, raw: raw, messageMax: messageMax, reader: reader}, nil
}

// WriteRecord implements [session.Writer].
func (s *Socket) WriteRecord(kind layout.Kind, stream uint32, payload []byte) (bool, error) {
	return s.write(kind, stream, nil, payload)
}

// WriteMessage implements [Conn]: short messages go as DATA, others as fragments, so that records
// of other streams can come between (SPEC 8.2).
func (s *Socket) WriteMessage(m *Outgoing) (bool, error) {
	if len(m.Payload) <= dataBytesMax {
		isWritten, err := s.write(layout.KindData, m.Stream, nil, m.Payload)
		m.HasBegun = isWritten
		return isWritten, err
	}
	for m.Written < len(m.Payload) {
		part := m.Payload[m.Written:min(len(m.Payload), m.Written+dataBytesMax)]
		kind := layout.KindFragmentMid
		var prefix []byte
		switch {
		case !m.HasBegun:
			kind = layout.KindFragmentFirst
			prefix = binary.LittleEndian.AppendUint64(nil, uint64(len(m.Payload)))
		case m.Written+len(part) == len(m.Payload):
			kind = layout.KindFragmentLast
		}
		if isWritten, err := s.write(kind, m.Stream, prefix, part); !isWritten || err != nil {
			return false, err
		}
		m.HasBegun = true
		m.Written += len(part)
	}
	return true, nil
}

// write adds a record to the unsent bytes if there is room, and sends what the socket takes.
func (s *Socket) write(kind layout.Kind, stream uint32, prefix, payload []byte) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && s.closing {
		s.err = net.ErrClosed
	}
	if s.err != nil {
		return false, s.err
	}
	if len(s.unsent) >= unsentMax {
		return false, nil
	}
	s.add(layout.Header{Kind: kind, Stream: stream}, prefix, payload)
	return true, s.begin()
}

// add adds a record to the unsent bytes.
func (s *Socket) add(h layout.Header, prefix, payload []byte) {
	h.Position, h.Len = s.writeAt, uint32(len(prefix)+len(payload))
	s.unsent = h.AppendHeader(s.unsent)
	s.unsent = append(append(s.unsent, prefix...), payload...)
	s.writeAt = h.Next()
}

// begin sends what the socket takes now, and lets a goroutine send what is left. The lock is held.
func (s *Socket) begin() error {
	if s.isSending {
		return nil
	}
	err := s.raw.Write(func(descriptor uintptr) bool {
		s.send(descriptor)
		return true
	})
	if s.err == nil && err != nil {
		s.fail(err)
	}
	if s.err == nil && len(s.unsent) > 0 {
		s.isSending = true
		go s.sendRest()
	}
	return s.err
}

// sendRest sends what is unsent, as the socket takes it.
func (s *Socket) sendRest() {
	err := s.raw.Write(func(descriptor uintptr) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.send(descriptor)
		s.isSending = s.err == nil && len(s.unsent) > 0
		return !s.isSending
	})
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.isSending = false
		s.fail(err)
	}
}

// send makes one attempt to send the unsent bytes, and wakes those that wait. The lock is held.
func (s *Socket) send(descriptor uintptr) {
	n, err := syscall.Write(int(descriptor), s.unsent)
	switch {
	case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR):
		return
	case err != nil:
		s.fail(err)
		return
	}
	rest := copy(s.unsent, s.unsent[n:])
	s.unsent = s.unsent[:rest]
	if rest == 0 && cap(s.unsent) > 4*unsentMax {
		s.unsent = nil
	}
	s.wake()
}

// fail notes that nothing more can be sent. The lock is held.
func (s *Socket) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.unsent = nil
	s.wake()
}

// wake wakes those that wait for room. The lock is held.
func (s *Socket) wake() {
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
}

// WaitRoom implements [Conn].
func (s *Socket) WaitRoom() error { return s.waitUnsent(unsentMax, nil) }

// waitUnsent waits until fewer than limit bytes are unsent.
func (s *Socket) waitUnsent(limit int, timeout <-chan time.Time) error {
	for {
		s.mu.Lock()
		if s.err != nil || len(s.unsent) < limit {
			defer s.mu.Unlock()
			return s.err
		}
		if s.room == nil {
			s.room = make(chan struct{})
		}
		room := s.room
		s.mu.Unlock()
		select {
		case <-room:
		case <-timeout:
			return nil
		}
	}
}

// ReadRecord implements [Conn].
func (s *Socket) ReadRecord() (layout.Header, []byte, session.Message, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	h, payload, m, err := s.read()
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		err = io.EOF // a hang-up within a record drops that record (SPEC 8.1)
	}
	return h, payload, m, err
}

func (s *Socket) read() (layout.Header, []byte, session.Message, error) {
	var none session.Message
	head, err := s.reader.Peek(layout.RecordHeaderBytes)
	if err != nil {
		return layout.Header{}, nil, none, err
	}
	h, err := layout.ParseSocket(head, s.readAt)
	if err != nil {
		return h, nil, none, err
	}
	if s.isFinished {
		return h, nil, none, layout.ViolationUnexpected
	}
	_, _ = s.reader.Discard(layout.RecordHeaderBytes) // they are in the buffer
	s.readAt = h.Next()
	s.isFinished = h.Kind == layout.KindCloseWrite && h.Stream == 0
	if h.Kind == layout.KindData {
		message := make([]byte, h.Len)
		_, err := io.ReadFull(s.reader, message)
		return h, message, session.Message{Bytes: message}, err
	}
	if uint32(cap(s.payload)) < h.Len {
		s.payload = make([]byte, h.Len)
	}
	payload := s.payload[:h.Len]
	if _, err := io.ReadFull(s.reader, payload); err != nil || h.Kind != layout.KindBlob {
		return h, payload, none, err
	}
	message, err := s.readBlob(payload)
	return h, payload, session.Message{Bytes: message}, err
}

// readBlob reads the message that follows the body of a BLOB. Memory grows as bytes come.
func (s *Socket) readBlob(body []byte) ([]byte, error) {
	blob, err := layout.ParseBlob(body)
	if err != nil {
		return nil, err
	}
	if blob.Length > s.messageMax {
		return nil, layout.ViolationMessageLength
	}
	var message bytes.Buffer
	n, err := io.CopyN(&message, s.reader, int64(blob.Length))
	if err == io.EOF && uint64(n) < blob.Length {
		err = io.ErrUnexpectedEOF
	}
	return message.Bytes(), err
}

// CloseWrite implements [Conn].
func (s *Socket) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.closing {
		return s.err
	}
	s.add(layout.Header{Kind: layout.KindCloseWrite}, nil, nil)
	s.closing = true
	return s.begin()
}

// Close implements [Conn]. What is unsent is sent for a bounded time. If CLOSE_WRITE was written,
// what comes is dropped then until the peer hangs up, for the same time: a TCP socket that is
// closed earlier would take back what was sent (SPEC 8.4).
func (s *Socket) Close() error {
	var err error
	s.once.Do(func() { err = s.close() })
	return err
}

func (s *Socket) close() error {
	s.mu.Lock()
	closing := s.closing
	s.mu.Unlock()
	if half, canShut := s.conn.(interface{ CloseWrite() error }); closing && canShut {
		_ = s.waitUnsent(1, time.After(closingMax))
		_ = half.CloseWrite() // an error changes nothing: the socket is closed in any case
		if _, isTCP := s.conn.(*net.TCPConn); isTCP {
			_ = s.conn.SetReadDeadline(time.Now().Add(closingMax))
			s.reading.Lock()
			_, _ = io.Copy(io.Discard, s.reader)
			s.reading.Unlock()
		}
	}
	return s.conn.Close()
}

const (
	// dataBytesMax is the longest message that goes as DATA, and the longest fragment but for its
	// prefix, in bytes (SPEC 8.2).
	dataBytesMax = 16384 - layout.RecordHeaderBytes

	// unsentMax is how many unsent bytes end the room for further records.
	unsentMax = 64 << 10

	// readBytes is the size of the buffer between the socket and the records.
	readBytes = 64 << 10

	// closingMax bounds how long a socket is kept that has ended.
	closingMax = time.Second
)

var _ Conn = (*Socket)(nil)

// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/ring"
	"partywall.test/go/internal/sys"
)

// socketSender is the [Sender] of a connection over a socket (SPEC 8).
//
//	appended records ─▶ parts ── Commit ──▶ the socket takes all
//	                                   └──▶ rest: a goroutine writes it, until then no room
//
// So this process holds at most the bytes of one Commit that the socket has not taken. Of the
// sender's methods only CommitAll and WaitRoom wait.
type socketSender struct {
	carrier    *socketCarrier
	messageMax uint64
	position   uint64
	head       []byte   // headers and short payloads of the open batch
	parts      [][]byte // of the open batch; slices of head, and payloads of the caller

	memory    [][]byte // that of parts
	committed uint64   // position behind the last batch that was sent
	isPartial bool     // a part of the open batch was sent

	// write sends the parts of the open batch as far as the socket takes them now. writable does
	// the same whenever the socket may take bytes, until it has taken some. Both functions are made
	// once, so that calling them allocates nothing.
	write    func(uintptr)
	writable func(uintptr) bool
	sent     int // bytes that they have sent
	failure  error

	writing  chan struct{} // closed when the rest is written; nil if there is none
	failed   atomic.Bool   // the socket takes nothing any more
	isClosed bool          // CLOSE_WRITE was appended
	late     alarm
	over     chan struct{} // closed by interrupt
	isOver   atomic.Bool
}

var _ Sender = (*socketSender)(nil)

func newSocketSender(k *socketCarrier, messageMax uint64) *socketSender {
	s := &socketSender{carrier: k, messageMax: messageMax, over: make(chan struct{})}
	s.write = func(fd uintptr) { s.sent, s.failure = sys.SendParts(int(fd), s.parts...) }
	s.writable = func(fd uintptr) bool {
		s.write(fd)
		return !errors.Is(s.failure, sys.ErrWouldBlock)
	}
	return s
}

// begin checks that the connection can send, and that the socket has taken all bytes of the last
// Commit.
func (s *socketSender) begin() error {
	if err := s.carrier.check(); err != nil {
		return err
	}
	switch {
	case s.isClosed:
		return ErrClosed
	case s.writing == nil:
	case isDone(s.writing):
		s.writing = nil
	default:
		return ErrFull
	}
	if s.failed.Load() || s.carrier.isGone.Load() {
		return ErrDisconnected
	}
	return nil
}

// TryMessage appends a message, as the interface [Sender] demands. The caller must not change the
// payload before Commit.
func (s *socketSender) TryMessage(stream uint32, payload []byte, _ Credit) error {
	if err := s.begin(); err != nil {
		return err
	}
	n := uint64(len(payload))
	if n > s.messageMax {
		return &TooLongError{Size: n, Max: s.messageMax}
	}
	if n <= dataMax {
		s.add(layout.KindData, stream, payload)
		return nil
	}
	var body [layout.BlobBytes]byte
	s.add(layout.KindBlob, stream, layout.Blob{Length: n}.Append(body[:0]))
	s.addPart(payload)
	return nil
}

func (s *socketSender) TryRecord(kind layout.Kind, stream uint32, parts ...[]byte) error {
	if err := s.begin(); err != nil {
		return err
	}
	s.add(kind, stream, parts...)
	return nil
}

// add appends a record with a copy of its payload to the open batch.
func (s *socketSender) add(kind layout.Kind, stream uint32, parts ...[]byte) {
	n := uint32(0)
	for _, part := range parts {
		n += uint32(len(part))
	}
	header := layout.Header{Position: s.position, Kind: kind, Len: n, Stream: stream}
	s.position = header.Next()
	start := len(s.head)
	s.head = header.AppendHeader(s.head)
	for _, part := range parts {
		s.head = append(s.head, part...)
	}
	s.addPart(s.head[start:])
}

// addPart appends bytes, without a copy, to those that Commit sends.
func (s *socketSender) addPart(part []byte) {
	if len(part) == 0 {
		return
	}
	s.parts = append(s.parts, part)
	s.memory = s.parts
}

func (*socketSender) RecordMax() uint64 { return dataMax }

// CarriesCredit returns false, because over a socket no message carries credit.
func (*socketSender) CarriesCredit(int) bool { return false }

// Reserve returns private memory for a message, because a socket has no shared memory.
func (s *socketSender) Reserve(n uint64) (*Reservation, error) {
	if err := s.carrier.check(); err != nil {
		return nil, err
	}
	if s.isClosed {
		return nil, ErrClosed
	}
	if n > s.messageMax {
		return nil, &TooLongError{Size: n, Max: s.messageMax}
	}
	return &Reservation{Bytes: make([]byte, n), block: ring.Block{}}, nil
}

func (s *socketSender) TryReserved(
	r *Reservation, stream uint32, n uint64, credit Credit,
) error {
	return s.TryMessage(stream, r.Bytes[:n], credit)
}

// Free does nothing: a reservation is private memory, which the garbage collector frees.
func (*socketSender) Free(*Reservation) {}

// Commit writes the appended records to the socket. A goroutine writes the bytes that the socket
// does not take now.
func (s *socketSender) Commit() error {
	if len(s.parts) == 0 {
		return nil
	}
	if err := s.attempt(); err != nil {
		return err
	}
	if len(s.parts) > 0 {
		s.writeLater()
	}
	s.finish()
	return nil
}

// CommitAll writes the appended records, and waits until the socket has taken all of them. If the
// deadline passes after some bytes were written, a goroutine writes the rest. If it passes before,
// CommitAll drops the records.
func (s *socketSender) CommitAll() error {
	if len(s.parts) == 0 {
		return nil
	}
	if err := s.attempt(); err != nil {
		return err
	}
	if len(s.parts) > 0 {
		if err := s.writeNow(); err != nil {
			return err
		}
	}
	s.finish()
	return nil
}

// attempt sends as many appended bytes as the socket takes now, and removes them from the open
// batch.
func (s *socketSender) attempt() error {
	err := s.carrier.raw.Control(s.write)
	switch {
	case err == nil && s.failure == nil:
		s.skip(s.sent)
		return nil
	case err == nil && errors.Is(s.failure, sys.ErrWouldBlock):
		return nil
	}
	return s.lost(err)
}

// writeNow waits until the socket has taken all bytes of the open batch.
func (s *socketSender) writeNow() error {
	for len(s.parts) > 0 {
		if err := s.applyDeadline(); err != nil {
			return s.lost(err)
		}
		err := s.carrier.raw.Write(s.writable)
		switch {
		case err == nil && s.failure == nil:
			s.skip(s.sent)
		case errors.Is(err, os.ErrDeadlineExceeded) && !s.isPartial:
			s.forget()
			s.position = s.committed
			if s.isOver.Load() {
				return ErrClosed
			}
			return ErrTimedOut
		case errors.Is(err, os.ErrDeadlineExceeded):
			s.writeLater()
			return nil
		default:
			return s.lost(err)
		}
	}
	return nil
}

// applyDeadline sets the write deadline of the socket to that of the sender. It repeats this if the
// sender's deadline has changed meanwhile.
func (s *socketSender) applyDeadline() error {
	for {
		limit, isOver := s.late.limit.time(), s.isOver.Load()
		t := limit
		if isOver {
			t = time.Unix(1, 0)
		}
		if err := s.carrier.conn.SetWriteDeadline(t); err != nil {
			return err
		}
		if isOver || !s.isOver.Load() && limit.Equal(s.late.limit.time()) {
			return nil
		}
	}
}

// skip removes the first n appended bytes, because they were sent.
func (s *socketSender) skip(n int) {
	s.isPartial = s.isPartial || n > 0
	for len(s.parts) > 0 && n >= len(s.parts[0]) {
		n -= len(s.parts[0])
		s.parts = s.parts[1:]
	}
	if n > 0 {
		s.parts[0] = s.parts[0][n:]
	}
}

// lost ends the sending direction, because the socket takes no more bytes. It returns the error to
// report.
func (s *socketSender) lost(err error) error {
	s.forget()
	s.failed.Store(true)
	if err != nil || errors.Is(s.failure, sys.ErrHungUp) {
		return ErrDisconnected
	}
	return s.carrier.fail(&SystemError{fmt.Errorf("sendmsg: %w", s.failure)})
}

// finish ends the open batch, whose bytes were all sent or handed to a goroutine that sends them.
func (s *socketSender) finish() {
	s.committed = s.position
	if s.isClosed && s.writing == nil {
		_ = s.carrier.conn.CloseWrite()
	}
	s.forget()
}

// forget empties the open batch, and keeps its memory for the next batch.
func (s *socketSender) forget() {
	s.head = s.head[:0]
	s.isPartial = false
	clear(s.memory)
	s.parts = s.memory[:0]
}

// writeLater copies the bytes that the socket did not take, and starts a goroutine that writes
// them.
func (s *socketSender) writeLater() {
	var rest []byte
	for _, part := range s.parts {
		rest = append(rest, part...)
	}
	written := make(chan struct{})
	s.writing = written
	isLast := s.isClosed
	go func() {
		defer close(written)
		if err := s.writeAll(rest); err != nil {
			// The direction ends here: a part of a message may have been written, and nothing else
			// can follow it (SPEC 8.2).
			s.failed.Store(true)
			_ = s.carrier.conn.CloseWrite()
			return
		}
		if isLast {
			_ = s.carrier.conn.CloseWrite()
		}
	}()
}

// writeAll writes the rest of committed bytes, even after the sender's deadline: the call that sent
// them has already succeeded.
func (s *socketSender) writeAll(rest []byte) error {
	for {
		n, err := s.carrier.conn.Write(rest)
		rest = rest[n:]
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err := s.carrier.conn.SetWriteDeadline(time.Time{}); err != nil {
			return err
		}
	}
}

// Close appends the record CLOSE_WRITE, even after an interrupt, and then shuts down the sending
// direction of the socket.
func (s *socketSender) Close(stream uint32) error {
	if err := s.carrier.brokenBy(); err != nil {
		return err
	}
	if s.isClosed {
		return ErrClosed
	}
	if s.writing != nil && !s.drain(lingerTime) {
		s.failed.Store(true) // what is left of a message cannot be followed by an end
	}
	if s.failed.Load() {
		return ErrDisconnected
	}
	s.writing = nil
	s.add(layout.KindCloseWrite, stream)
	s.isClosed = true
	if err := s.Commit(); !errors.Is(err, ErrDisconnected) {
		return err
	}
	return nil // a peer that is gone needs no end
}

// WaitRoom waits until the socket has taken all bytes of the last Commit.
func (s *socketSender) WaitRoom() error {
	if s.writing == nil {
		return nil
	}
	if !s.late.wait(s.writing, s.over) {
		return ErrTimedOut
	}
	return nil
}

func (s *socketSender) SetDeadline(t time.Time) error {
	s.late.set(t)
	if s.carrier.isClosed.Load() {
		return ErrClosed
	}
	err := s.carrier.conn.SetWriteDeadline(t)
	if s.carrier.isClosed.Load() {
		// The sender was interrupted at the same time, and is interrupted again, because this call
		// may have replaced the deadline by which the interrupt works.
		s.interrupt()
		return ErrClosed
	}
	return err
}

func (s *socketSender) IsLate() bool { return s.late.limit.hasPassed() }

// interrupt makes CommitAll and WaitRoom return, even a call that waits already.
func (s *socketSender) interrupt() {
	if s.isOver.CompareAndSwap(false, true) {
		close(s.over)
		_ = s.carrier.conn.SetWriteDeadline(time.Unix(1, 0))
	}
}

// drain waits until all bytes are written, for limit at most, and reports whether they are.
func (s *socketSender) drain(limit time.Duration) bool {
	if s.writing == nil || s.failed.Load() {
		return !s.failed.Load()
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.writing:
		return !s.failed.Load()
	case <-timer.C:
		return false
	}
}

func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// dataMax is the longest message in bytes that goes as DATA on a socket; a longer one goes as BLOB
// (SPEC 8.2).
const dataMax = 16384 - layout.RecordHeaderBytes

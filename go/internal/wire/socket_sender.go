// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/ring"
	"partywall.test/go/internal/sys"
)

// socketSender writes records to a socket (SPEC 8).
//
//	appended records ─▶ parts ── Commit ──▶ the socket takes all
//	                                   └──▶ rest: a goroutine writes it, until then no room
//
// So at most what one Commit published waits in this process, and no call of the sender blocks but
// WaitRoom.
type socketSender struct {
	carrier    *socketCarrier
	messageMax uint64
	position   uint64
	head       []byte   // headers and short payloads of the open batch
	parts      [][]byte // of the open batch; slices of head, and payloads of the caller

	writing  chan struct{} // closed when the rest is written; nil if there is none
	failed   atomic.Bool   // the socket takes nothing any more
	isClosed bool          // CLOSE_WRITE was appended
	late     alarm
	over     chan struct{} // closed by interrupt
	isOver   atomic.Bool
}

var _ Sender = (*socketSender)(nil)

func newSocketSender(k *socketCarrier, messageMax uint64) *socketSender {
	return &socketSender{carrier: k, messageMax: messageMax, over: make(chan struct{})}
}

// begin checks that the connection can send, and that the last Commit is written.
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

// TryMessage appends a message. The caller does not change the payload before Commit.
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
	s.parts = append(s.parts, payload)
	return nil
}

// TryRecord appends a record.
func (s *socketSender) TryRecord(kind layout.Kind, stream uint32, parts ...[]byte) error {
	if err := s.begin(); err != nil {
		return err
	}
	s.add(kind, stream, parts...)
	return nil
}

// add appends a record whose payload is copied if it is short.
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
	s.parts = append(s.parts, s.head[start:])
}

// RecordMax returns the longest payload of a record in bytes.
func (*socketSender) RecordMax() uint64 { return dataMax }

// CarriesCredit reports that no message does.
func (*socketSender) CarriesCredit(int) bool { return false }

// Reserve returns private memory.
func (s *socketSender) Reserve(n uint64) (*Reservation, error) {
	if err := s.carrier.check(); err != nil {
		return nil, err
	}
	if n > s.messageMax {
		return nil, &TooLongError{Size: n, Max: s.messageMax}
	}
	return &Reservation{Bytes: make([]byte, n), block: ring.Block{}}, nil
}

// TryReserved appends the message that a reservation holds.
func (s *socketSender) TryReserved(r *Reservation, stream uint32, n uint64) error {
	return s.TryMessage(stream, r.Bytes[:n], Credit{})
}

// Free does nothing: the memory is private.
func (*socketSender) Free(*Reservation) {}

// Commit writes what was appended. What the socket does not take now, a goroutine writes.
func (s *socketSender) Commit() error {
	if len(s.parts) == 0 {
		return nil
	}
	total := 0
	for _, part := range s.parts {
		total += len(part)
	}
	var sent int
	var failure error
	err := s.carrier.raw.Control(func(fd uintptr) {
		sent, failure = sys.SendParts(int(fd), s.parts...)
	})
	if err != nil || failure != nil && !errors.Is(failure, sys.ErrWouldBlock) {
		s.forget()
		s.failed.Store(true)
		if err != nil || errors.Is(failure, sys.ErrHungUp) {
			return ErrDisconnected
		}
		return s.carrier.fail(&SystemError{fmt.Errorf("sendmsg: %w", failure)})
	}
	if sent < total {
		s.writeLater(sent, total)
	} else if s.isClosed {
		_ = s.carrier.conn.CloseWrite()
	}
	s.forget()
	return nil
}

// forget drops the open batch, and keeps its memory.
func (s *socketSender) forget() {
	s.head = s.head[:0]
	clear(s.parts)
	s.parts = s.parts[:0]
}

// writeLater copies what the socket did not take and starts a goroutine that writes it.
func (s *socketSender) writeLater(sent, total int) {
	rest := make([]byte, 0, total-sent)
	for _, part := range s.parts {
		skipped := min(sent, len(part))
		sent -= skipped
		rest = append(rest, part[skipped:]...)
	}
	written := make(chan struct{})
	s.writing = written
	isLast := s.isClosed
	go func() {
		defer close(written)
		if _, err := s.carrier.conn.Write(rest); err != nil {
			// After a part of a message nothing can follow (SPEC 8.2).
			s.failed.Store(true)
			_ = s.carrier.conn.CloseWrite()
			return
		}
		if isLast {
			_ = s.carrier.conn.CloseWrite()
		}
	}()
}

// Close appends CLOSE_WRITE, also after an interrupt. The direction is shut down behind it.
func (s *socketSender) Close(stream uint32) error {
	if broken := s.carrier.broken.Load(); broken != nil {
		return *broken
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

// WaitRoom waits until the last Commit is written.
func (s *socketSender) WaitRoom() error {
	if s.writing == nil {
		return nil
	}
	if !s.late.wait(s.writing, s.over) {
		return ErrTimedOut
	}
	return nil
}

// SetDeadline sets the time at which WaitRoom fails.
func (s *socketSender) SetDeadline(t time.Time) error {
	s.late.set(t)
	return nil
}

// IsLate reports whether the deadline has passed.
func (s *socketSender) IsLate() bool { return hasPassed(&s.late.limit) }

// interrupt makes WaitRoom return.
func (s *socketSender) interrupt() {
	if s.isOver.CompareAndSwap(false, true) {
		close(s.over)
	}
}

// drain waits until all is written, at most for limit, and reports whether it is.
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

// dataMax is the longest message that goes as DATA, in bytes (SPEC 8.2).
const dataMax = 16384 - layout.RecordHeaderBytes

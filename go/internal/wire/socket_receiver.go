// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/sys"
)

// socketReceiver is the [Receiver] of a connection over a socket (SPEC 8).
//
//	buffer  | done | record | next record … | free |   blob: message bytes behind a BLOB, growing
//	        0      start                    end
type socketReceiver struct {
	carrier  *socketCarrier
	checker  Checker
	position uint64
	buffer   []byte
	start    int // of the next record
	end      int // of the received bytes

	current layout.Header // the record that Next returned
	hasBlob bool          // current is a BLOB; its message is in blob
	blob    []byte        // message bytes that have come
	missing uint64        // message bytes that have not come
	spare   []byte        // memory of an earlier message that was not taken

	isWoken   atomic.Bool // Wake was called, and no Wait has returned since
	isWaiting atomic.Bool // a goroutine is within Wait
	deadline  instant
}

var _ Receiver = (*socketReceiver)(nil)

func newSocketReceiver(k *socketCarrier, checker Checker) *socketReceiver {
	return &socketReceiver{carrier: k, checker: checker, buffer: make([]byte, bufferBytes)}
}

func (r *socketReceiver) Next() (Record, bool, error) {
	if err := r.carrier.check(); err != nil {
		return Record{}, false, err
	}
	record, ok, err := r.parse()
	switch {
	case err != nil:
		return Record{}, false, r.carrier.fail(err)
	case !ok && r.carrier.isGone.Load():
		return Record{}, false, ErrDisconnected
	}
	return record, ok, nil
}

// parse returns the next record of the buffer if all its bytes have come.
func (r *socketReceiver) parse() (Record, bool, error) {
	if r.missing > 0 {
		return Record{}, false, nil
	}
	if r.hasBlob {
		return r.blobRecord(), true, nil
	}
	received := r.buffer[r.start:r.end]
	if len(received) < layout.RecordHeaderBytes {
		return Record{}, false, nil
	}
	header, err := layout.ParseSocket(received, r.position, false)
	if err != nil {
		return Record{}, false, err
	}
	size := layout.RecordHeaderBytes + int(header.Len)
	if len(received) < size {
		r.makeRoom(size)
		return Record{}, false, nil
	}
	payload := received[layout.RecordHeaderBytes:size]
	if err := r.checker.Receive(header, payload); err != nil && !fault.Is("unchecked_socket") {
		return Record{}, false, fmt.Errorf("record at position %d: %w", header.Position, err)
	}
	r.current, r.position = header, header.Next()
	if header.Kind != layout.KindBlob {
		return Record{Kind: header.Kind, Stream: header.Stream, Len: int(header.Len)}, true, nil
	}
	blob, err := layout.ParseBlob(payload)
	if err != nil {
		return Record{}, false, err
	}
	r.start += size
	r.hasBlob, r.blob, r.missing = true, r.spare[:0], blob.Length
	r.spare = nil
	r.fill()
	return r.blobRecord(), r.missing == 0, nil
}

func (r *socketReceiver) blobRecord() Record {
	return Record{Kind: layout.KindBlob, Stream: r.current.Stream, Len: len(r.blob)}
}

// fill moves the bytes of a BLOB's message from the receiver's buffer to blob, the memory for that
// message.
func (r *socketReceiver) fill() {
	n := min(uint64(r.end-r.start), r.missing)
	r.blob = append(r.blob, r.buffer[r.start:r.start+int(n)]...)
	r.start += int(n)
	r.missing -= n
}

// makeRoom makes the receiver's buffer large enough for the record of size bytes that begins at the
// offset start.
func (r *socketReceiver) makeRoom(size int) {
	if r.start+size <= len(r.buffer) {
		return
	}
	into := r.buffer
	if size > len(into) {
		into = make([]byte, size)
	}
	r.end = copy(into, r.buffer[r.start:r.end])
	r.start, r.buffer = 0, into
}

// room returns the memory into which the next bytes of the socket are read: that of a BLOB's
// message, or the receiver's buffer.
func (r *socketReceiver) room() []byte {
	if r.missing == 0 {
		if r.start == r.end {
			r.start, r.end = 0, 0
		}
		if r.end == len(r.buffer) {
			r.makeRoom(len(r.buffer))
		}
		return r.buffer[r.end:]
	}
	if fault.Is("length_believed") {
		r.blob = slices.Grow(r.blob, int(r.missing))
	}
	if free := cap(r.blob) - len(r.blob); free == 0 {
		// The memory for a message grows as its bytes come, because the length that the peer
		// announces is not trusted (SPEC 8.2).
		grown := make([]byte, len(r.blob), max(min(2*cap(r.blob), len(r.blob)+int(r.missing)),
			min(int(r.missing), blobBytes)))
		copy(grown, r.blob)
		r.blob = grown
	}
	free := min(uint64(cap(r.blob)-len(r.blob)), r.missing)
	return r.blob[len(r.blob) : len(r.blob)+int(free)]
}

// received counts n bytes that were read from the socket into the memory that [socketReceiver.room]
// returned.
func (r *socketReceiver) received(n int) {
	if r.missing == 0 {
		r.end += n
		return
	}
	r.blob = r.blob[:len(r.blob)+n]
	r.missing -= uint64(n)
}

func (r *socketReceiver) CopyTo(into []byte) int { return copy(into, r.message()) }

// Lend returns no message, because all messages of a socket lie in private memory of this process.
func (*socketReceiver) Lend() (message []byte, lender *Lender, block uint64) { return nil, nil, 0 }

func (r *socketReceiver) Take() *Message {
	if r.hasBlob {
		taken := r.blob
		r.blob = nil
		return NewMessage(taken)
	}
	return NewMessage(append([]byte(nil), r.message()...))
}

func (r *socketReceiver) Payload() []byte { return r.message() }

// message returns the message of the current record if it is a BLOB, and otherwise the record's
// payload.
func (r *socketReceiver) message() []byte {
	if r.hasBlob {
		return r.blob
	}
	return r.buffer[r.start+layout.RecordHeaderBytes:][:r.current.Len]
}

func (r *socketReceiver) Done() {
	if r.hasBlob {
		if cap(r.blob) <= spareBytes {
			r.spare = r.blob
		}
		r.hasBlob, r.blob = false, nil
		return
	}
	r.start += layout.RecordHeaderBytes + int(r.current.Len)
}

func (r *socketReceiver) Poll() error {
	n, err := r.carrier.read(r.room())
	if errors.Is(err, sys.ErrWouldBlock) {
		return nil
	}
	return r.note(n, err)
}

// Wait reads once from the socket. It waits until there are bytes to read, or Wake is called. It
// never polls, whatever its argument is.
func (r *socketReceiver) Wait(bool) error {
	r.isWaiting.Store(true)
	var n int
	var err error
	if !r.isWoken.Load() {
		n, err = r.carrier.conn.Read(r.room())
	}
	r.isWaiting.Store(false)
	if err != nil && r.deadline.isNever() && errors.Is(err, os.ErrDeadlineExceeded) &&
		!r.carrier.isClosed.Load() {
		// The read ended because Wake has set a deadline in the past, which this code now removes.
		// If the whole connection was interrupted at the same time, the next call of Next finds
		// that.
		err = r.carrier.conn.SetReadDeadline(time.Time{})
	}
	r.isWoken.Store(false)
	return r.note(n, err)
}

// Wake makes Wait return, without a system call, as the interface [Receiver] demands.
func (r *socketReceiver) Wake() {
	r.isWoken.Store(true)
	if r.isWaiting.Load() && !fault.Is("read_uninterrupted") {
		// The error is ignored: it means that the socket is closed, where nobody waits.
		_ = r.carrier.conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// note handles the result of a read from the socket: n bytes, or an error.
func (r *socketReceiver) note(n int, err error) error {
	r.received(n)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		if r.carrier.isClosed.Load() {
			return ErrClosed
		}
		return ErrTimedOut
	case errors.Is(err, io.EOF), errors.Is(err, sys.ErrHungUp),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, net.ErrClosed):
		r.carrier.isGone.Store(true)
		return r.carrier.check()
	}
	return r.carrier.fail(&SystemError{err})
}

func (r *socketReceiver) SetDeadline(t time.Time) error {
	r.deadline.set(t)
	if r.carrier.isClosed.Load() {
		return ErrClosed
	}
	err := r.carrier.conn.SetReadDeadline(t)
	if r.carrier.isClosed.Load() {
		// The connection was interrupted at the same time: its deadline in the past is set again,
		// because this call may have replaced it.
		_ = r.carrier.conn.SetReadDeadline(time.Unix(1, 0))
		return ErrClosed
	}
	return err
}

func (r *socketReceiver) IsLate() bool { return r.deadline.hasPassed() }

// Leave shuts down the reading direction of a Unix socket, so that the peer's sends fail. A TCP
// socket cannot tell the peer that nobody reads (SPEC 8.4).
func (r *socketReceiver) Leave() {
	if r.carrier.isUnix {
		_ = r.carrier.conn.CloseRead()
	}
}

const (
	// bufferBytes is the initial size of a receiver's buffer in bytes. A longer record makes the
	// buffer grow.
	bufferBytes = 32 << 10
	// blobBytes is the initial memory for the message of a BLOB in bytes. The memory doubles as
	// bytes come.
	blobBytes = 64 << 10
	// spareBytes is the most memory in bytes that a receiver keeps from one message for the next.
	// Larger memory is left to the garbage collector.
	spareBytes = 4 << 20
)

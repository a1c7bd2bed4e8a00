// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"sync"

	"partywall.test/go/internal/clock"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/session"
	"partywall.test/go/internal/wire"
)

// A Checker checks those records of the peer that package wire needs before the session sees them:
// records of segments, and the places of messages. The state of the session checks the others.
type Checker struct {
	limits   layout.Limits
	segments *layout.Segments
	body     []byte // of the last BLOB
}

// NewChecker makes the checker of the records that come on one connection.
func NewChecker(limits layout.Limits, segments *layout.Segments) wire.Checker {
	return &Checker{limits: limits, segments: segments}
}

// Receive checks one record of the peer, as the interface [wire.Checker] demands.
func (c *Checker) Receive(h layout.Header, payload []byte) error {
	switch h.Kind {
	case layout.KindBlob:
		c.body = append(c.body[:0], payload...)
		return layout.CheckBlob(payload, c.limits, c.segments)
	case layout.KindSegment, layout.KindSegmentRetire:
	default:
		return nil
	}
	if c.segments == nil {
		return layout.ViolationUnexpected
	}
	segment, err := layout.ParseSegment(payload)
	if err != nil {
		return err
	}
	if h.Kind == layout.KindSegment {
		return c.segments.Add(segment)
	}
	return c.segments.Retire(segment)
}

// A wireConn is the [Conn] of a session over shared memory or a socket.
type wireConn struct {
	connection *wire.Connection
	checker    *Checker
	sender     wire.Sender
	receiver   wire.Receiver
	payload    []byte // of the last record that is no message
}

// A Config has the settings of a session apart from those of its connection.
type Config struct {
	Role       uint32
	Limits     layout.Limits // of this side
	Window     uint64        // stream window of this side, in bytes
	StreamsMax uint32        // streams that the peer may have open at a time
}

// NewState returns the state of a session over a connection, whose checker must come from
// [NewChecker]. It also returns the connection in the form that [Start] takes.
func NewState(connection *wire.Connection, config Config) (Conn, *session.Session) {
	checker := connection.Checker.(*Checker)
	peer := connection.Outcome.Peer
	state := session.New(session.Config{
		Role:           config.Role,
		Limits:         config.Limits,
		Window:         config.Window,
		StreamsMax:     config.StreamsMax,
		PeerMessageMax: peer.MessageMax,
		PeerWindow:     peer.StreamWindow,
		PeerStreamsMax: peer.StreamsMax,
	}, checker.segments)
	return &wireConn{
		connection: connection,
		checker:    checker,
		sender:     connection.Sender,
		receiver:   connection.Receiver,
	}, state
}

func (c *wireConn) WriteRecord(kind layout.Kind, stream uint32, payload []byte) (bool, error) {
	return c.commit(c.sender.TryRecord(kind, stream, payload))
}

// commit makes the record that was just appended visible to the peer, where err is the error of
// appending it. The result is false if there was no room for the record.
func (c *wireConn) commit(err error) (bool, error) {
	isFull := errors.Is(err, wire.ErrFull)
	if err != nil && !isFull {
		return false, err
	}
	// Even if the record found no room, records of segments may have been appended before it, and
	// must become visible.
	return !isFull, c.sender.Commit()
}

// WriteMessage writes a message, as the interface [Conn] demands. The message goes as a whole if
// there is memory for it. Otherwise it goes in fragments, so that no stream waits for memory that
// the messages of another stream hold (SPEC 5.5).
func (c *wireConn) WriteMessage(m *Outgoing) (bool, error) {
	isLong := len(m.Payload) > int(c.sender.RecordMax())
	isBlock := c.sender.CarriesCredit(len(m.Payload))
	if m.Reserved != nil && m.Reserved.IsShared() {
		return c.writeReserved(m)
	}
	if !m.HasBegun && (isBlock || !isLong) {
		credit := wire.Credit{IsThere: m.HasCredit && isBlock, Credited: m.Credit}
		err := c.sender.TryMessage(m.Stream, m.Payload, credit)
		if err == nil || !isBlock || !isLackOfMemory(err) {
			isWritten, err := c.commit(err)
			m.HasBegun = isWritten
			m.HasCredit = m.HasCredit && !(isWritten && isBlock)
			return isWritten, err
		}
	}
	return c.writeFragments(m)
}

// writeReserved writes a message that already lies in a block of shared memory, where the peer
// reads it.
func (c *wireConn) writeReserved(m *Outgoing) (bool, error) {
	credit := wire.Credit{IsThere: m.HasCredit, Credited: m.Credit}
	err := c.sender.TryReserved(m.Reserved, m.Stream, uint64(len(m.Payload)), credit)
	if err == nil {
		m.Reserved, m.HasBegun, m.HasCredit = nil, true, false
	}
	return c.commit(err)
}

func (c *wireConn) HasBlock(n int) bool { return c.sender.CarriesCredit(n) }

// Reserve returns a block, or private memory if no block is free, as the interface [Conn] demands.
func (c *wireConn) Reserve(n int) (*wire.Reservation, error) {
	r, err := c.sender.Reserve(uint64(n))
	if err == nil || !isLackOfMemory(err) {
		return r, err
	}
	return &wire.Reservation{Bytes: make([]byte, n)}, nil
}

func (c *wireConn) Free(r *wire.Reservation) { c.sender.Free(r) }

// isLackOfMemory reports whether err says that a message found no block, now or ever. A ring
// without room gives the same errors.
func isLackOfMemory(err error) bool {
	var tooLong *wire.TooLongError
	return errors.Is(err, wire.ErrFull) || errors.As(err, &tooLong)
}

// writeFragments writes the fragments of a message, and publishes them in batches of about 64 KiB.
func (c *wireConn) writeFragments(m *Outgoing) (bool, error) {
	for visible := m.Written; ; {
		isLast, err := c.writeFragment(m)
		if err != nil {
			return c.commit(err)
		}
		if isLast || m.Written-visible >= fragmentsBytes {
			if err := c.sender.Commit(); err != nil || isLast {
				return isLast, err
			}
			visible = m.Written
		}
	}
}

// writeFragment appends the next fragment of a message to the open batch, and returns whether it is
// the last fragment.
func (c *wireConn) writeFragment(m *Outgoing) (bool, error) {
	rest := m.Payload[m.Written:]
	part := rest[:min(len(rest), int(c.sender.RecordMax())-layout.FragmentPrefixBytes)]
	kind := layout.KindFragmentMid
	var prefix []byte
	switch {
	case !m.HasBegun:
		kind = layout.KindFragmentFirst
		prefix = binary.LittleEndian.AppendUint64(nil, uint64(len(m.Payload)))
	case len(part) == len(rest):
		kind = layout.KindFragmentLast
	}
	if err := c.sender.TryRecord(kind, m.Stream, prefix, part); err != nil {
		return false, err
	}
	m.HasBegun = true
	m.Written += len(part)
	return kind == layout.KindFragmentLast, nil
}

func (c *wireConn) Room() func() error { return c.sender.Room() }

func (c *wireConn) Unwritten() func() error { return c.sender.Unwritten() }

func (c *wireConn) ReadRecord(polls bool) (layout.Header, []byte, session.Message, error) {
	for hasWaited := false; ; hasWaited = true {
		record, isThere, err := c.receiver.Next()
		switch {
		case err == nil && isThere:
			header, payload, message := c.take(record)
			return header, payload, message, nil
		case err == nil && hasWaited:
			err = errWoken // or a part of a record has come
		case err == nil:
			err = c.receiver.Wait(polls)
		}
		switch {
		case errors.Is(err, wire.ErrDisconnected):
			return layout.Header{}, nil, session.Message{}, io.EOF
		case err != nil:
			return layout.Header{}, nil, session.Message{}, err
		}
	}
}

func (c *wireConn) Wake() { c.receiver.Wake() }

// Tick returns a timer of 1 ms from the clock that all sessions share, as the interface [Conn]
// demands.
func (c *wireConn) Tick(call func()) clock.Tick { return clock.NewTick(call) }

func (c *wireConn) take(r wire.Record) (layout.Header, []byte, session.Message) {
	header := layout.Header{Kind: r.Kind, Len: uint32(r.Len), Stream: r.Stream}
	if !r.IsMessage() {
		c.payload = append(c.payload[:0], c.receiver.Payload()...)
		c.receiver.Done()
		return header, c.payload, session.Message{}
	}
	defer c.receiver.Done()
	if bytes, lender, block := c.receiver.Lend(); lender != nil {
		return header, c.checker.body, session.Message{Bytes: bytes, Owner: lender, Block: block}
	}
	if r.Kind == layout.KindBlob && r.Len > pooledBytesMax {
		return header, c.checker.body, session.Message{Bytes: c.receiver.Take().Bytes()}
	}
	bytes, owner := newPooled(r.Len)
	c.receiver.CopyTo(bytes)
	m := session.Message{Bytes: bytes, Owner: owner}
	if r.Kind == layout.KindBlob {
		return header, c.checker.body, m
	}
	return header, bytes, m
}

func (c *wireConn) CloseWrite() error { return c.sender.Close(0) }

func (c *wireConn) Interrupt() { c.connection.Interrupt() }

func (c *wireConn) Close() {
	c.receiver.Leave()
	c.connection.Close()
}

// A pooled is memory for a message that was copied out of a record. It implements [session.Owner],
// so that releasing the message gives the memory back to a pool of free memory.
//
// The capacity of the memory is a power of two. So an unread message holds less than twice its own
// size, and the stream's credit bounds this size (SPEC 11.4).
type pooled struct {
	bytes []byte
	class int // index of its pool, or -1 if its memory is not used again
}

// newPooled returns memory for a message of n bytes, and the owner that takes the memory back when
// the message is released.
func newPooled(n int) ([]byte, *pooled) {
	class := max(bits.Len(uint(max(n, 1)-1))-smallestClassBits, 0)
	if class >= len(pools) {
		return make([]byte, n), &pooled{class: -1}
	}
	owner, isUsed := pools[class].Get().(*pooled)
	if !isUsed {
		owner = &pooled{bytes: make([]byte, 1<<(class+smallestClassBits)), class: class}
	}
	return owner.bytes[:n], owner
}

// Release gives the memory of a message back to the pool of free memory of that size, as the
// interface [session.Owner] demands.
func (p *pooled) Release(uint64) {
	if p.class >= 0 {
		pools[p.class].Put(p)
	}
}

// smallestClassBits is the base-2 logarithm of the message size of the first pool of free memory:
// 64 bytes, which is also the least that a message costs in credit.
const smallestClassBits = 6

// pooledBytesMax is the size in bytes of the longest messages whose memory comes from a pool of
// free memory, and goes back to it.
const pooledBytesMax = 128 << 10

// pools has free memory for messages of up to 64 bytes, up to 128 bytes, and so on to 128 KiB.
var pools [12]sync.Pool

// Wire returns the message as a message of package wire. The caller releases that one instead of m.
func (m Message) Wire() *wire.Message {
	if lender, isBorrowed := m.Owner.(*wire.Lender); isBorrowed {
		return wire.NewBorrowedMessage(m.Bytes, lender, m.Block)
	}
	return wire.NewMessage(m.Bytes)
}

// fragmentsBytes is the number of bytes of a message in fragments that are appended before they are
// published together. On a socket, publishing them is one system call.
const fragmentsBytes = 64 << 10

var _ Conn = (*wireConn)(nil)

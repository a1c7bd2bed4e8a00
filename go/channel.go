// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/wire"
)

// A Channel is a pipe of messages in each direction, between two processes. Messages arrive whole
// and in order.
//
// Any number of goroutines may use a channel. Methods that send run one after the other, and so do
// methods that receive.
type Channel struct {
	connection *wire.Connection
	policy     BackPressure
	closing    sync.Once

	sendMutex   sync.Mutex
	sender      wire.Sender
	isAbortDue  bool // a message was given up after its first fragments
	isWriteOver bool
	isClosed    bool

	recvMutex sync.Mutex
	receiver  wire.Receiver
	current   wire.Record // a message that was received and not taken
	isThere   bool        // current is one
	assembly  []byte      // bytes of a message that comes in fragments
	assembled bool        // assembly is the whole message that current stands for
	isReadEnd bool        // CLOSE_WRITE was received
}

func newChannel(c *wire.Connection, policy BackPressure) *Channel {
	return &Channel{connection: c, policy: policy, sender: c.Sender, receiver: c.Receiver}
}

// newChecker returns the rules for the order of the records that the peer sends on a channel.
func newChecker(limits layout.Limits, segments *layout.Segments) wire.Checker {
	return layout.NewChannel(limits, segments)
}

// Peer returns the process at the other end of the channel, as the kernel has verified it.
func (c *Channel) Peer() Peer { return Peer(c.connection.Peer) }

// Transport says whether shared memory or the socket carries the messages, and why if it is the
// socket.
func (c *Channel) Transport() Transport {
	outcome := c.connection.Outcome
	return Transport{IsShared: outcome.IsShared, Reason: FallbackReason(outcome.Reason)}
}

// Send sends a message. Once it returns without an error, the peer receives the message over shared
// memory even if this process dies. While there is no room for the message, Send does what
// [Config.BackPressure] says.
func (c *Channel) Send(message []byte) error {
	c.sendMutex.Lock()
	err := c.attempt(func() error { return c.sender.TryMessage(0, message, wire.Credit{}) }, message)
	if err != nil {
		err = c.sendError("send", err)
	}
	c.sendMutex.Unlock() // not deferred, which takes as long as the lock itself
	return err
}

// sendError returns the error of an operation that sends. After [Channel.CloseWrite] it says that
// the channel still receives. The caller holds sendMutex.
func (c *Channel) sendError(op string, err error) error {
	if c.isWriteOver && !c.isClosed && errors.Is(err, wire.ErrClosed) {
		err = errWriteOver
	}
	return wrap(op, err)
}

// errWriteOver is the error of sending on a channel after [Channel.CloseWrite].
var errWriteOver = &wire.Failure{
	Number: layout.ErrorStreamFinishedHere,
	Text:   "this side has ended its sending with CloseWrite: the channel still receives",
}

// TrySend sends a message if there is room for it now. If there is none, the error wraps [ErrFull].
func (c *Channel) TrySend(message []byte) error {
	c.sendMutex.Lock()
	defer c.sendMutex.Unlock()
	err := c.abortIfDue()
	if err == nil {
		err = c.sender.TryMessage(0, message, wire.Credit{})
	}
	if err == nil {
		err = c.sender.Commit()
	}
	return c.sendError("send", err)
}

// attempt calls try, which appends a record or reserves memory, until there is room, and then
// commits the record. With [BackPressureOverflow] it sends message in fragments while no memory is
// free. For a reservation, which cannot go in fragments, message is nil.
func (c *Channel) attempt(try func() error, message []byte) error {
	if c.sender.IsLate() {
		return wire.ErrTimedOut
	}
	for {
		err := c.abortIfDue()
		if err == nil {
			err = try()
		}
		switch {
		case err == nil:
			return c.sender.CommitAll()
		case c.overflows(err, message):
			return c.sendFragments(message)
		case !errors.Is(err, ErrFull) || c.policy == BackPressureError:
			return err
		}
		if err := c.sender.WaitRoom(); err != nil {
			return err
		}
	}
}

// overflows reports whether a message is now sent in fragments, because sending it whole failed
// with err and the channel has [BackPressureOverflow].
func (c *Channel) overflows(err error, message []byte) bool {
	if c.policy != BackPressureOverflow || !c.sender.CarriesCredit(len(message)) {
		return false
	}
	var tooLong *wire.TooLongError
	return errors.Is(err, ErrFull) || errors.As(err, &tooLong) &&
		uint64(len(message)) <= c.connection.Outcome.Peer.MessageMax
}

// sendFragments sends a message through the ring in several records, its fragments (SPEC 5.5).
func (c *Channel) sendFragments(message []byte) error {
	part := int(c.sender.RecordMax() / 2)
	var total [layout.FragmentPrefixBytes]byte
	binary.LittleEndian.PutUint64(total[:], uint64(len(message)))
	first := min(part, len(message))
	err := c.sendRecord(layout.KindFragmentFirst, total[:], message[:first])
	if err != nil {
		return err
	}
	for rest := message[first:]; ; {
		kind, n := layout.KindFragmentMid, min(part, len(rest))
		if n == len(rest) {
			kind = layout.KindFragmentLast
		}
		if err := c.sendRecord(kind, rest[:n]); err != nil {
			c.isAbortDue = true
			return err
		}
		if kind == layout.KindFragmentLast {
			return nil
		}
		rest = rest[n:]
	}
}

// sendRecord appends and commits one record. While there is no room for the record, sendRecord
// waits.
func (c *Channel) sendRecord(kind layout.Kind, parts ...[]byte) error {
	for {
		err := c.sender.TryRecord(kind, 0, parts...)
		if err == nil {
			return c.sender.Commit()
		}
		if !errors.Is(err, ErrFull) {
			return err
		}
		if err := c.sender.WaitRoom(); err != nil {
			return err
		}
	}
}

// abortIfDue sends FRAGMENT_ABORT if a message was given up after its first fragments, so that the
// peer drops them.
func (c *Channel) abortIfDue() error {
	if !c.isAbortDue {
		return nil
	}
	return c.abort()
}

// abort sends FRAGMENT_ABORT, after which none is due.
func (c *Channel) abort() error {
	if err := c.sender.TryRecord(layout.KindFragmentAbort, 0); err != nil {
		return err
	}
	c.isAbortDue = false
	return nil
}

// Reserve returns memory in which the caller writes a message of n bytes. A short message is copied
// into the ring when it is committed. While no memory is free, Reserve does what
// [Config.BackPressure] says, except that a reserved message is never sent in fragments.
func (c *Channel) Reserve(n int) (*Reservation, error) {
	c.sendMutex.Lock()
	defer c.sendMutex.Unlock()
	var memory *wire.Reservation
	err := c.attempt(func() (err error) {
		memory, err = c.sender.Reserve(uint64(n))
		return err
	}, nil)
	if err != nil {
		return nil, c.sendError("reserve", err)
	}
	return &Reservation{reserved: channelReserved{c, memory}}, nil
}

func (c *Channel) commit(memory *wire.Reservation, n uint64) error {
	c.sendMutex.Lock()
	defer c.sendMutex.Unlock()
	err := c.attempt(func() error { return c.sender.TryReserved(memory, 0, n, wire.Credit{}) }, nil)
	if err != nil {
		c.sender.Free(memory)
	}
	return c.sendError("send", err)
}

func (c *Channel) free(memory *wire.Reservation) {
	c.sendMutex.Lock()
	defer c.sendMutex.Unlock()
	c.sender.Free(memory)
}

// Recv receives a message into the caller's memory and returns its size. The error is [io.EOF] once
// the peer has closed its direction and every message was received. If the message is longer than
// into, the error wraps [io.ErrShortBuffer], and the next call receives the same message.
func (c *Channel) Recv(into []byte) (int, error) { return c.recv(into, true) }

// TryRecv receives a message into the caller's memory and returns its size, but never waits. If
// there is no message now, the error wraps [ErrEmpty]. The other errors are those of
// [Channel.Recv].
func (c *Channel) TryRecv(into []byte) (int, error) { return c.recv(into, false) }

func (c *Channel) recv(into []byte, waits bool) (int, error) {
	c.recvMutex.Lock()
	size, err := c.receive(into, waits)
	c.recvMutex.Unlock() // not deferred, which takes as long as the lock itself
	if err != nil {
		return 0, wrap("recv", err)
	}
	return size, nil
}

// receive receives a message into the caller's memory. The caller holds recvMutex.
func (c *Channel) receive(into []byte, waits bool) (int, error) {
	if err := c.next(waits); err != nil {
		return 0, err
	}
	size := c.size()
	if size > len(into) {
		return 0, shortBuffer(size, len(into))
	}
	if c.assembled {
		copy(into, c.assembly)
	} else {
		c.receiver.CopyTo(into)
	}
	c.done()
	return size, nil
}

// RecvMessage receives a message without copying it; the caller releases the message. The errors
// are those of [Channel.Recv], except that io.ErrShortBuffer does not occur.
func (c *Channel) RecvMessage() (*Message, error) { return c.recvMessage(true) }

// TryRecvMessage receives a message without copying it, but never waits; the caller releases the
// message. If there is no message now, the error wraps [ErrEmpty].
func (c *Channel) TryRecvMessage() (*Message, error) { return c.recvMessage(false) }

func (c *Channel) recvMessage(waits bool) (*Message, error) {
	c.recvMutex.Lock()
	defer c.recvMutex.Unlock()
	if err := c.next(waits); err != nil {
		return nil, wrap("recv", err)
	}
	if c.assembled {
		message := wire.NewMessage(c.assembly)
		c.assembly = nil
		c.done()
		return received(message), nil
	}
	message := c.receiver.Take()
	c.done()
	return received(message), nil
}

// size returns the size in bytes of the current message, which was received but not yet passed to
// the caller.
func (c *Channel) size() int {
	if c.assembled {
		return len(c.assembly)
	}
	return c.current.Len
}

// done ends the use of the current message, so that the next one can be received.
func (c *Channel) done() {
	if !c.assembled {
		c.receiver.Done()
	}
	c.isThere, c.assembled = false, false
}

// next receives a message and makes it the channel's current message, unless there already is one.
// If waits is true, next waits until a message comes; if not, the error is [ErrEmpty] when none has
// come.
func (c *Channel) next(waits bool) error {
	if c.receiver.IsLate() && waits {
		return wire.ErrTimedOut
	}
	for hasPolled := false; !c.isThere; {
		if c.isReadEnd {
			return io.EOF
		}
		record, ok, err := c.receiver.Next()
		switch {
		case err != nil:
			return err
		case ok:
			c.accept(record)
			continue
		case waits:
			err = c.receiver.Wait(true)
		case hasPolled:
			return ErrEmpty
		default:
			hasPolled, err = true, c.receiver.Poll()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// accept handles a record of the peer whose order was checked before. A whole message becomes the
// channel's current message; fragments of a message are collected until the last one has come.
func (c *Channel) accept(record wire.Record) {
	switch record.Kind {
	case layout.KindData, layout.KindBlob:
		c.current, c.isThere = record, true
		return
	case layout.KindFragmentFirst:
		c.assembly = append([]byte(nil), c.receiver.Payload()[layout.FragmentPrefixBytes:]...)
	case layout.KindFragmentMid, layout.KindFragmentLast:
		c.assembly = append(c.assembly, c.receiver.Payload()...)
	case layout.KindFragmentAbort:
		c.assembly = nil
	case layout.KindCloseWrite:
		c.isReadEnd, c.assembly = true, nil
	}
	c.receiver.Done()
	if record.Kind == layout.KindFragmentLast {
		c.isThere, c.assembled = true, true
	}
}

// CloseWrite tells the peer that no more messages come. This side still receives.
func (c *Channel) CloseWrite() error {
	c.sendMutex.Lock()
	defer c.sendMutex.Unlock()
	if c.isWriteOver {
		return wrap("close", wire.ErrClosed)
	}
	c.isWriteOver = true
	return wrap("close", c.sender.Close(0))
}

// Close closes the channel in good order: the peer receives what was sent, then the end. Calls that
// wait return an error that wraps [net.ErrClosed]. Messages stay valid until they are released.
func (c *Channel) Close() error {
	err := wire.ErrClosed
	c.closing.Do(func() {
		c.connection.Interrupt()
		c.sendMutex.Lock()
		defer c.sendMutex.Unlock()
		c.recvMutex.Lock()
		defer c.recvMutex.Unlock()
		c.isClosed = true
		if !c.isWriteOver {
			c.isWriteOver = true
			// The error is ignored: if the peer has gone, it does not matter that the record
			// CLOSE_WRITE was not sent.
			_ = c.sender.Close(0)
		}
		c.receiver.Leave()
		c.connection.Close()
		err = nil
	})
	return wrap("close", err)
}

// SetDeadline sets the deadlines of both receiving and sending.
func (c *Channel) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline sets the time at which calls that receive fail, even those that wait already. The
// zero time means never.
func (c *Channel) SetReadDeadline(t time.Time) error {
	return wrap("set", c.receiver.SetDeadline(t))
}

// SetWriteDeadline sets the time at which calls that send fail, even those that wait already. The
// zero time means never.
func (c *Channel) SetWriteDeadline(t time.Time) error {
	return wrap("set", c.sender.SetDeadline(t))
}

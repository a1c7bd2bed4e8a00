// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"partywall.test/go/internal/handshake"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/sys"
)

// A Connection is a connection whose handshake is done, with the sender and the receiver of this
// side.
type Connection struct {
	Sender   Sender
	Receiver Receiver
	Checker  Checker // that the settings made for the records of the peer
	Peer     Peer
	Outcome  handshake.Outcome

	carrier carrier
}

// carrier is the transport that a connection uses: shared memory or a socket.
type carrier interface {
	interrupt()
	close()
}

// Interrupt makes calls of the connection's sender and receiver return ErrClosed instead of
// waiting: those that wait now, and all later ones.
func (c *Connection) Interrupt() { c.carrier.interrupt() }

// Close closes the connection's descriptors and frees its memory, except for messages and
// reservations that are still in use. No call of the connection's sender or receiver may be under
// way or follow.
func (c *Connection) Close() { c.carrier.close() }

// A Handshake is the unfinished handshake of one connection.
type Handshake struct {
	conn     net.Conn
	unix     *net.UnixConn // nil if no descriptors can come
	raw      syscall.RawConn
	settings *Settings
	machine  *handshake.Machine
	env      *environment
	buffer   [layout.FrameBytesMax]byte

	isTouched      atomic.Bool
	hasKernelPidfd bool
	passesPidfd    bool

	// beforeRun is called when the handshake is done, before the connection is made. It may be nil.
	beforeRun func()
}

// NewHandshake prepares the handshake on conn, and takes conn over. If conn is the Unix socket of a
// connector, [passCredentials] must have been called before it connected (SPEC 2.1).
func NewHandshake(conn net.Conn, settings *Settings) (*Handshake, error) {
	h := &Handshake{conn: conn, settings: settings, env: &environment{settings: settings}}
	h.env.peer.Address = addressOf(conn, settings.Role)
	obstacle := layout.FallbackReason(0)
	unixConn, isUnix := conn.(*net.UnixConn)
	switch {
	case settings.Transports == TransportSocket:
		obstacle = layout.ReasonPolicy
	case !isUnix:
		obstacle = layout.ReasonRemote
	case runtime.GOOS != "linux" || !canShareWords:
		obstacle = layout.ReasonMemfd
	}
	pidfd := -1
	if isUnix && runtime.GOOS == "linux" {
		raw, err := unixConn.SyscallConn()
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		h.unix, h.raw = unixConn, raw
		h.setPassPidfd(true)
		if !h.hasKernelPidfd {
			if own, err := sys.OpenPidfd(os.Getpid()); err == nil {
				defer own.Close()
				pidfd = own.Descriptor()
			}
		}
	}
	h.machine = handshake.New(handshake.Terms{
		Role:       settings.Role,
		Hello:      settings.hello(obstacle),
		Pidfd:      pidfd,
		RegionSize: settings.region().Size,
		MayTrust:   settings.Trust != TrustUntrusted,
	}, h.env)
	return h, nil
}

// addressOf returns the address of the peer's socket. On the side of the acceptor this is often
// empty; the result is then the address of this side's socket.
func addressOf(conn net.Conn, role uint32) string {
	address := conn.RemoteAddr()
	if role == layout.RoleAcceptor && address.String() == "" {
		address = conn.LocalAddr()
	}
	return address.String()
}

// IsTouched reports whether the peer has sent at least one byte. Any goroutine may call it.
func (h *Handshake) IsTouched() bool { return h.isTouched.Load() }

// Run performs the handshake, until the deadline of conn at the latest. If the handshake fails, Run
// closes conn.
func (h *Handshake) Run() (*Connection, error) {
	outcome, err := h.agree()
	if err == nil {
		var connection *Connection
		if connection, err = h.establish(outcome); err == nil {
			return connection, nil
		}
	}
	h.env.drop()
	_ = h.conn.Close()
	return nil, err
}

// agree exchanges frames of the handshake with the peer until both sides are ready.
func (h *Handshake) agree() (*handshake.Outcome, error) {
	err := h.machine.Start()
	if err == nil {
		err = h.send(h.machine.Flight())
	}
	if err != nil {
		return nil, err
	}
	for {
		arrival, err := h.receive(h.machine.Wanted())
		if err != nil {
			return nil, err
		}
		outcome, err := h.machine.Receive(arrival)
		if !h.machine.IsUntouched() && h.passesPidfd && h.env.arrived == nil {
			h.setPassPidfd(false)
		}
		if flight := h.machine.Flight(); len(flight.Bytes) > 0 {
			if sendErr := h.send(flight); err == nil {
				err = sendErr
			}
		}
		if err != nil || outcome != nil {
			return outcome, err
		}
	}
}

// setPassPidfd sets whether the kernel adds a pidfd of the peer to each read from the socket. Linux
// before 6.5 cannot add one, which is no error.
func (h *Handshake) setPassPidfd(enable bool) {
	var failure error
	err := h.raw.Control(func(fd uintptr) { failure = sys.PassPidfd(int(fd), enable) })
	h.passesPidfd = enable && err == nil && failure == nil
	h.hasKernelPidfd = h.hasKernelPidfd || h.passesPidfd
}

// receive reads once from the socket, at most wanted bytes. After an error the handshake has ended.
func (h *Handshake) receive(wanted int) (handshake.Arrival, error) {
	into := h.buffer[:min(wanted, len(h.buffer))]
	var arrival handshake.Arrival
	var err error
	if h.unix != nil {
		arrival, err = h.receiveMessage(into)
	} else {
		var n int
		n, err = h.conn.Read(into)
		arrival.Bytes = into[:n]
		if n > 0 {
			err = nil
		}
	}
	switch {
	case err == nil:
		h.isTouched.Store(true)
		return arrival, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		failure := h.machine.TimeOut()
		// The deadline of the handshake has passed, so sending REJECT gets a short deadline of its
		// own.
		_ = h.conn.SetWriteDeadline(time.Now().Add(rejectTime))
		_ = h.send(h.machine.Flight())
		return arrival, failure
	case errors.Is(err, sys.ErrHungUp), errors.Is(err, io.EOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, net.ErrClosed):
		return arrival, h.machine.HangUp()
	}
	return arrival, &handshake.Error{Number: layout.ErrorHandshakeSystem, Err: err}
}

// receiveMessage reads once from a Unix socket: bytes, and the descriptors and credentials that
// came with them.
func (h *Handshake) receiveMessage(into []byte) (handshake.Arrival, error) {
	var message sys.Message
	var failure error
	err := h.raw.Read(func(fd uintptr) bool {
		message, failure = sys.Receive(int(fd), into)
		return !errors.Is(failure, sys.ErrWouldBlock)
	})
	if err == nil {
		err = failure
	}
	arrival := handshake.Arrival{
		Bytes:       into[:message.Bytes],
		Descriptors: message.Descriptors,
		IsTruncated: message.IsTruncated,
	}
	if sender := message.Credentials; sender != nil {
		arrival.Sender = handshake.Sender{
			IsKnown: true, PID: sender.PID, UID: sender.UID, GID: sender.GID,
		}
	}
	switch {
	case message.Pidfd == nil:
	case h.machine.IsUntouched() && h.env.arrived == nil:
		h.env.arrived = message.Pidfd
	default:
		message.Pidfd.Close()
	}
	if err != nil {
		closeAll(arrival.Descriptors)
	}
	return arrival, err
}

// send sends frames and their descriptors to the peer. If the peer is gone, that is no error here,
// because a REJECT that the peer sent before may still be read.
func (h *Handshake) send(flight handshake.Flight) error {
	if len(flight.Bytes) == 0 {
		return nil
	}
	var err error
	if h.unix != nil && len(flight.Descriptors) > 0 {
		err = h.sendMessage(flight)
	} else {
		_, err = h.conn.Write(flight.Bytes)
	}
	switch {
	case err == nil, errors.Is(err, sys.ErrHungUp), errors.Is(err, syscall.EPIPE),
		errors.Is(err, syscall.ECONNRESET):
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &handshake.Error{Number: layout.ErrorHandshakeTimedOut}
	}
	return &handshake.Error{Number: layout.ErrorHandshakeSystem, Err: err}
}

// sendMessage sends frames and their descriptors to the peer in one message. Bytes that the socket
// does not take at once are sent afterwards without descriptors.
func (h *Handshake) sendMessage(flight handshake.Flight) error {
	var sent int
	var failure error
	err := h.raw.Write(func(fd uintptr) bool {
		sent, failure = sys.Send(int(fd), flight.Bytes, flight.Descriptors...)
		return !errors.Is(failure, sys.ErrWouldBlock)
	})
	if err != nil {
		return err
	}
	if failure == nil && sent < len(flight.Bytes) {
		_, failure = h.conn.Write(flight.Bytes[sent:])
	}
	return failure
}

// establish makes the sender and the receiver for the transport on which both sides have agreed.
func (h *Handshake) establish(outcome *handshake.Outcome) (*Connection, error) {
	if h.beforeRun != nil {
		h.beforeRun()
	}
	if err := h.conn.SetDeadline(time.Time{}); err != nil {
		return nil, &handshake.Error{Number: layout.ErrorHandshakeSystem, Err: err}
	}
	c := &Connection{Peer: h.env.peer, Outcome: *outcome}
	if !outcome.IsShared {
		h.env.dropMemory()
		establishSocket(c, h)
		return c, nil
	}
	if err := h.establishShared(c, outcome); err != nil {
		return nil, &handshake.Error{Number: layout.ErrorHandshakeSystem, Err: err}
	}
	return c, nil
}

func (h *Handshake) establishShared(c *Connection, outcome *handshake.Outcome) error {
	env := h.env
	socket, err := newControlSocket(h.unix, h.settings.SegmentsMax)
	if err != nil {
		return err
	}
	if !outcome.HasDoorbells {
		env.dropPeersDoorbells()
		if err := env.replaceDoorbells(); err != nil {
			return err
		}
	}
	memory := &sharedMemory{
		socket: socket, own: env.own, peer: env.theirs, isTrusted: outcome.IsTrusted,
		isLocal: env.peer.isThisProcess(), pid: env.peer.PID,
		records: env.records, room: env.room,
		peersRecords: env.theirRecords, peersRoom: env.theirRoom,
	}
	limits := h.settings.sendLimits(outcome.Peer, env.own.header.Size)
	sender := newSharedSender(memory, h.settings, limits)
	receiver := newSharedReceiver(memory, h.settings)
	c.Checker = receiver.checker
	c.Sender, c.Receiver = sender, receiver
	c.carrier = &sharedCarrier{memory, receiver}
	memory.start(env.process)
	return nil
}

// sharedCarrier closes a connection over shared memory: first the receiver's segments, then the
// memory that sender and receiver have in common.
type sharedCarrier struct {
	*sharedMemory
	receiver *sharedReceiver
}

func (c *sharedCarrier) close() {
	c.receiver.close()
	c.sharedMemory.close()
}

// rejectTime is the longest time for which sending a REJECT may block after the handshake's
// deadline has passed.
const rejectTime = 100 * time.Millisecond

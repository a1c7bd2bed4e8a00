// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/sys"
)

// controlSocket is the Unix socket of a connection over shared memory. It carries doorbells and the
// descriptors of segments (SPEC 6.6, 6.7). Several goroutines may use it.
//
//	| 1 | 1 | 2 | 1 | 0 8 | number | 1 | …      doorbells, and a frame with one descriptor
type controlSocket struct {
	conn *net.UnixConn
	raw  syscall.RawConn

	mutex       sync.Mutex
	frame       []byte // the beginning of a frame that is not complete
	unclaimed   []int  // descriptors whose frame is not complete
	segments    []arrivedSegment
	segmentsMax int
	last        uint32 // highest number of a segment that was taken
	isTruncated bool   // a descriptor was lost
	isClosed    bool

	doorbell func(uintptr) // sends a doorbell byte; made once, so that it allocates nothing
	notified func()        // is called when bytes came, by whoever has read them
}

// arrivedSegment is the descriptor of a segment that has come before its record SEGMENT was read.
type arrivedSegment struct {
	number     uint32
	descriptor int
}

func newControlSocket(conn *net.UnixConn, segmentsMax uint32) (*controlSocket, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &controlSocket{conn: conn, raw: raw, segmentsMax: int(segmentsMax), notified: func() {}}
	one := []byte{layout.ControlDoorbell}
	c.doorbell = func(fd uintptr) {
		// The error is ignored: if the socket is full, a notification is pending in it already, and
		// a peer that has gone needs none.
		_, _ = sys.Send(int(fd), one)
	}
	return c, nil
}

// watch reads the control socket until the peer hangs up or this side closes the socket. The error
// is a violation of the peer, or nil.
func (c *controlSocket) watch() error {
	var failure error
	err := c.raw.Read(func(fd uintptr) bool {
		for {
			err := c.read(int(fd))
			switch {
			case errors.Is(err, sys.ErrWouldBlock):
				return false
			case err != nil:
				failure = err
				return true
			}
		}
	})
	var violation layout.Violation
	if err == nil && errors.As(failure, &violation) {
		return failure
	}
	return nil
}

// read reads once from the control socket. If bytes came, both sleepers of this side, for records
// and for room, check what they wait for, because a doorbell byte does not say which of them it is
// for (SPEC 6.6).
func (c *controlSocket) read(fd int) error {
	isAny, err := c.readLocked(fd)
	if isAny && !fault.Is("doorbell_taken") {
		c.notified()
	}
	return err
}

// readLocked reads once from the control socket, and returns whether bytes came. The caller holds
// the mutex.
func (c *controlSocket) readLocked(fd int) (bool, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.isClosed {
		return false, sys.ErrHungUp
	}
	var buffer [256]byte
	message, err := sys.Receive(fd, buffer[:])
	if message.Pidfd != nil {
		message.Pidfd.Close()
	}
	c.unclaimed = append(c.unclaimed, message.Descriptors...)
	c.isTruncated = c.isTruncated || message.IsTruncated
	if err != nil {
		return false, err
	}
	return true, c.take(buffer[:message.Bytes])
}

// take divides the received bytes into doorbell bytes and frames, and handles each whole frame.
func (c *controlSocket) take(b []byte) error {
	c.frame = append(c.frame, b...)
	for len(c.frame) > 0 {
		f, isWhole, err := layout.ParseControl(c.frame)
		if err != nil {
			return err
		}
		if !isWhole {
			if fault.Is("pieces_lost") {
				c.frame = nil
			}
			break
		}
		c.frame = c.frame[f.Length:]
		if err := c.finish(f); err != nil {
			return err
		}
	}
	if len(c.unclaimed) > c.expected() && !fault.Is("descriptor_kept") {
		return fmt.Errorf("descriptor with no frame: %w", layout.ViolationFrame)
	}
	return nil
}

// expected returns the number of descriptors that may have come for the frame of which bytes are
// still missing.
func (c *controlSocket) expected() int {
	switch {
	case len(c.frame) == 0:
		c.frame = nil
		return 0
	case len(c.frame) < layout.ControlHeadBytes:
		return layout.ControlDescriptorsMax
	}
	return int(c.frame[layout.ControlFrameDescriptorsOffset])
}

// finish handles the descriptors of a whole frame. It keeps the descriptor of a segment, and closes
// any other.
func (c *controlSocket) finish(f layout.ControlFrame) error {
	count := min(f.Descriptors, len(c.unclaimed))
	claimed := c.unclaimed[:count:count]
	c.unclaimed = c.unclaimed[count:]
	if f.Type != layout.ControlSegment {
		closeAll(claimed)
		return nil
	}
	if count == 0 {
		return c.missing(f.Segment)
	}
	if f.Segment <= c.last {
		closeAll(claimed)
		return nil
	}
	if len(c.segments) >= c.segmentsMax && !fault.Is("segments_unbounded") {
		closeAll(claimed)
		return fmt.Errorf("more than %d segments without a record: %w",
			c.segmentsMax, layout.ViolationMemory)
	}
	c.segments = append(c.segments, arrivedSegment{f.Segment, claimed[0]})
	return nil
}

// takeSegment returns the descriptor of a segment whose record SEGMENT has come. The error is a
// violation of the peer, which has not sent the descriptor.
func (c *controlSocket) takeSegment(number uint32) (int, error) {
	if descriptor := c.claim(number); descriptor >= 0 {
		return descriptor, nil
	}
	// The descriptor is in the control socket by now, because the peer sends it before the record
	// SEGMENT.
	var failure error
	for range readsMax {
		if err := c.raw.Control(func(fd uintptr) { failure = c.read(int(fd)) }); err != nil {
			failure = err
		}
		if failure != nil {
			break
		}
	}
	if descriptor := c.claim(number); descriptor >= 0 {
		return descriptor, nil
	}
	var violation layout.Violation
	if errors.As(failure, &violation) {
		return -1, failure
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return -1, c.missing(number)
}

// claim returns the descriptor of a segment and forgets it, or returns -1 if the descriptor has not
// come. It closes the descriptors of segments with lower numbers, because the records of those
// segments can no longer come.
func (c *controlSocket) claim(number uint32) int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	found := -1
	rest := c.segments[:0]
	for _, segment := range c.segments {
		switch {
		case segment.number == number && found < 0:
			found, c.last = segment.descriptor, number
		case segment.number <= number:
			sys.CloseDescriptor(segment.descriptor)
		default:
			rest = append(rest, segment)
		}
	}
	c.segments = rest
	return found
}

func (c *controlSocket) missing(number uint32) error {
	hint := ""
	if c.isTruncated {
		hint = "; descriptors were lost: raise the limit of this process (ulimit -n)"
	}
	return fmt.Errorf("segment %d has no descriptor%s: %w",
		number, hint, layout.ViolationSegmentMissing)
}

func (c *controlSocket) notify() { _ = c.raw.Control(c.doorbell) }

// sendSegment sends the descriptor of a segment to the peer. The error is [sys.ErrWouldBlock] if
// the socket has no room now.
func (c *controlSocket) sendSegment(number uint32, descriptor int) error {
	frame := layout.AppendControlSegment(nil, number)
	var sent int
	var failure error
	err := c.raw.Control(func(fd uintptr) { sent, failure = sys.Send(int(fd), frame, descriptor) })
	switch {
	case err != nil:
		return err
	case failure == nil && sent != len(frame):
		return errors.New("the control socket took a part of a frame")
	}
	return failure
}

// hangUp closes the socket, which tells the peer that this side has gone.
func (c *controlSocket) hangUp() {
	// Close is called without the mutex, because it waits for the goroutine that reads the socket,
	// which may need the mutex.
	_ = c.conn.Close()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.isClosed = true
	closeAll(c.unclaimed)
	for _, segment := range c.segments {
		sys.CloseDescriptor(segment.descriptor)
	}
	c.unclaimed, c.segments = nil, nil
}

func closeAll(descriptors []int) {
	for _, descriptor := range descriptors {
		sys.CloseDescriptor(descriptor)
	}
}

// readsMax bounds how often the control socket is read to find the descriptor of one segment, so
// that a peer that sends doorbell bytes without end cannot hold up this side.
const readsMax = 64

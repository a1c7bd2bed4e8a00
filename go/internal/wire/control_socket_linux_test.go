// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/sys"
)

func socketPair(t *testing.T) (*net.UnixConn, *net.UnixConn) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	first, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	second, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = first.Close()
		_ = second.Close()
	})
	return first.(*net.UnixConn), second.(*net.UnixConn)
}

// A receiver that looks for the descriptor of a segment also reads doorbell bytes from the control
// socket. The receiver must pass the doorbell bytes on, because otherwise a sender that sleeps
// until there is room is never woken.
func TestDoorbellReadWithSegmentWakesSleepers(t *testing.T) {
	own, theirs := socketPair(t)
	socket, err := newControlSocket(own, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.hangUp()
	woken := 0
	socket.notified = func() { woken++ }
	peer, err := newControlSocket(theirs, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.hangUp()
	eventfd, err := sys.NewEventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer eventfd.Close()
	peer.notify()
	if err := peer.sendSegment(3, eventfd.Descriptor()); err != nil {
		t.Fatal(err)
	}
	descriptor, err := socket.takeSegment(3)
	if err != nil {
		t.Fatal(err)
	}
	sys.CloseDescriptor(descriptor)
	if woken == 0 {
		t.Error("nobody was woken")
	}
}

// controlPair returns the control sockets of both sides. The first one keeps the descriptors of at
// most two segments whose record SEGMENT has not come.
func controlPair(t *testing.T) (own, peer *controlSocket) {
	t.Helper()
	ours, theirs := socketPair(t)
	own, err := newControlSocket(ours, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.hangUp)
	if peer, err = newControlSocket(theirs, 2); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(peer.hangUp)
	return own, peer
}

// readUp reads the control socket until no bytes are left or the peer has broken a rule.
func (c *controlSocket) readUp(t *testing.T) error {
	t.Helper()
	for {
		var failure error
		if err := c.raw.Control(func(fd uintptr) { failure = c.read(int(fd)) }); err != nil {
			t.Fatal(err)
		}
		switch {
		case errors.Is(failure, sys.ErrWouldBlock):
			return nil
		case failure != nil:
			return failure
		}
	}
}

// A peer sends descriptors of segments, but no records SEGMENT. This side keeps a bounded number of
// these descriptors, because otherwise the peer could fill this side's table of descriptors.
func TestSegmentsWithoutRecordAreBounded(t *testing.T) {
	own, peer := controlPair(t)
	eventfd, err := sys.NewEventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer eventfd.Close()
	for number := uint32(1); number <= 3; number++ {
		if err := peer.sendSegment(number, eventfd.Descriptor()); err != nil {
			t.Fatal(err)
		}
		err := own.readUp(t)
		if isBeyond := number > 2; isBeyond != errors.Is(err, layout.ViolationMemory) {
			t.Errorf("segment %d, of which 2 are kept: %v", number, err)
		}
	}
	if len(own.segments) > 2 {
		t.Errorf("%d segments are kept", len(own.segments))
	}
}

// A descriptor comes with a doorbell byte and so belongs to no frame, which is a violation.
func TestDescriptorWithoutFrameIsViolation(t *testing.T) {
	own, peer := controlPair(t)
	eventfd, err := sys.NewEventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer eventfd.Close()
	peer.notify()
	if err := own.readUp(t); err != nil {
		t.Fatalf("a doorbell alone: %v", err)
	}
	var failure error
	if err := peer.raw.Control(func(fd uintptr) {
		_, failure = sys.Send(int(fd), []byte{layout.ControlDoorbell}, eventfd.Descriptor())
	}); err != nil || failure != nil {
		t.Fatal(err, failure)
	}
	if err := own.readUp(t); !errors.Is(err, layout.ViolationFrame) {
		t.Errorf("a doorbell with a descriptor: %v", err)
	}
}

func TestFrameInPiecesIsRead(t *testing.T) {
	own, theirs := socketPair(t)
	socket, err := newControlSocket(own, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.hangUp()
	raw, err := theirs.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	eventfd, err := sys.NewEventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer eventfd.Close()
	for i, b := range layout.AppendControlSegment(nil, 9) {
		var descriptors []int
		if i == 0 {
			descriptors = []int{eventfd.Descriptor()}
		}
		var failure error
		if err := raw.Control(func(fd uintptr) {
			_, failure = sys.Send(int(fd), []byte{b}, descriptors...)
		}); err != nil || failure != nil {
			t.Fatal(err, failure)
		}
		if err := socket.raw.Control(func(fd uintptr) { failure = socket.read(int(fd)) }); err != nil ||
			failure != nil {
			t.Fatal(err, failure)
		}
	}
	descriptor, err := socket.takeSegment(9)
	if err != nil {
		t.Fatal(err)
	}
	sys.CloseDescriptor(descriptor)
	if _, err := socket.takeSegment(9); !isViolation(err) {
		t.Errorf("a segment is taken twice: %v", err)
	}
}

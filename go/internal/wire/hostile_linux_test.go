// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"partywall.test/go/internal/handshake"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/sys"
)

// readerSettings returns the settings that SPEC 10 states for the side that reads images.
func readerSettings(trust Trust) Settings {
	return Settings{
		Role: layout.RoleAcceptor, Service: layout.ServiceChannel, Trust: trust,
		RingBytes: 65536, PeerBlocksMax: 8, MemoryMax: 1 << 20,
		MessageMax: 65536, MapMax: 262_144, SegmentsMax: 2, InlineMax: 1024,
		NewChecker: func(l layout.Limits, s *layout.Segments) Checker {
			return layout.NewChannel(l, s)
		},
	}
}

// hostilePeer is a connector with the region that SPEC 10 describes. A test writes bytes into the
// region.
type hostilePeer struct {
	connection *Connection
	memory     *sharedMemory
	conn       *net.UnixConn
}

// hostileEnvironment makes and maps the regions in the handshake of a hostile peer. It makes the
// region that SPEC 10 describes.
type hostileEnvironment struct{ *environment }

const (
	hostileRegionSize = 131_072
	hostileRingBytes  = 4096
)

func (e hostileEnvironment) MakeRegion(session [16]byte) (
	handshake.Offered, layout.FallbackReason,
) {
	header := layout.Region{
		Size: hostileRegionSize, RingOffset: 8192, RingSize: hostileRingBytes, ReleaseOffset: 12288,
		ReleaseEntries: 8, SlabOffset: 16384, SlabSize: hostileRegionSize - 16384,
		SessionID: session, Role: layout.RoleConnector, Service: layout.ServiceChannel,
	}
	own, err := newOwnRegion(header, "")
	if err != nil {
		return handshake.Offered{}, layout.ReasonMemory
	}
	e.own = own
	e.records, _ = newDoorbell()
	e.room, _ = newDoorbell()
	e.hasSent = true
	return handshake.Offered{
		Region: own.region.Descriptor(), Records: e.records.descriptor, Room: e.room.descriptor,
	}, 0
}

// listenForHostile returns a real listener, and a channel on which the reasons of its refusals are
// sent.
func listenForHostile(t *testing.T, s Settings) (*Listener, chan error) {
	t.Helper()
	refused := make(chan error, 10)
	address := Address{"unix", filepath.Join(t.TempDir(), "s")}
	listener, err := Listen(address, s, ListenOptions{
		HandshakeTimeout: testTime, HandshakesMax: 4, SocketMode: 0o600,
		OnRefused: func(err error) { refused <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener, refused
}

// dialHostile connects a hostile peer to the listener. It returns the peer, and the connection that
// the listener has accepted.
func dialHostile(t *testing.T, listener *Listener) (*hostilePeer, *Connection) {
	t.Helper()
	p := connectHostile(t, listener.Address())
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	t.Cleanup(cancel)
	accepted, err := listener.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		accepted.Interrupt()
		accepted.Close()
	})
	if err := accepted.Receiver.SetDeadline(time.Now().Add(testTime)); err != nil {
		t.Fatal(err)
	}
	return p, accepted
}

func connectHostile(t *testing.T, address Address) *hostilePeer {
	t.Helper()
	s := readerSettings(TrustAuto)
	s.Role = layout.RoleConnector
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	t.Cleanup(cancel)
	conn, err := connect(ctx, address, time.Now().Add(testTime))
	if err != nil {
		t.Fatal(err)
	}
	h, err := NewHandshake(conn, &s)
	if err != nil {
		t.Fatal(err)
	}
	h.machine = handshake.New(handshake.Terms{
		Role: s.Role, Hello: s.hello(0), Pidfd: -1, RegionSize: hostileRegionSize, MayTrust: true,
	}, hostileEnvironment{h.env})
	c, err := h.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Interrupt()
		c.Close()
	})
	p := &hostilePeer{connection: c, memory: c.carrier.(*sharedCarrier).sharedMemory}
	p.conn = p.memory.socket.conn
	return p
}

// fill writes a record of one slot at this position. A reader that has consumed such records up to
// the position where an image begins reads the image next.
func (p *hostilePeer) fill(position uint64) {
	at := position % hostileRingBytes
	p.memory.own.ring.Store(at+8, layout.Word1(0, 0))
	p.memory.own.ring.Store((at+layout.SlotBytes)%hostileRingBytes, 0)
	p.memory.own.ring.Publish(at, layout.Word0(position, layout.KindData))
}

// sendSegments makes segments 1 and 2 with the sizes that the records SEGMENT of the image state,
// and sends their descriptors.
func (p *hostilePeer) sendSegments(t *testing.T, i image) {
	t.Helper()
	sizes := [3]uint64{0, 65536, 65536}
	for at := 0; at+32 <= len(i.bytes); at += layout.SlotBytes {
		word := binary.LittleEndian.Uint64(i.bytes[at:])
		isSegment := word&^uint64(layout.KindMask)%4096 == uint64(at)|1 &&
			word&layout.KindMask == 2*uint64(layout.KindSegment)
		if segment, err := layout.ParseSegment(i.bytes[at+16:][:16]); err == nil && isSegment &&
			segment.Number >= 1 && segment.Number <= 2 && segment.Size%65536 == 0 &&
			segment.Size > 0 && segment.Size <= 131_072 {
			sizes[segment.Number] = segment.Size
		}
	}
	for number := uint32(1); number <= 2; number++ {
		region, err := sys.NewRegion("partywall-segment", sizes[number])
		if err != nil {
			t.Fatal(err)
		}
		if err := p.memory.socket.sendSegment(number, region.Descriptor()); err != nil {
			t.Fatal(err)
		}
		if err := region.Unmap(); err != nil {
			t.Fatal(err)
		}
	}
}

// readAll reads count records, or all records if count is negative. It returns the first error.
func readAll(r Receiver, count int) error {
	for count != 0 {
		record, ok, err := r.Next()
		switch {
		case err != nil:
			return err
		case !ok && count < 0:
			return nil
		case !ok:
			if err := r.Wait(true); err != nil {
				return err
			}
			continue
		}
		if record.IsMessage() {
			r.Take().Release()
		} else {
			_ = r.Payload()
		}
		r.Done()
		count--
	}
	return nil
}

// checkCode compares the error of a reader with the violation that INDEX.md states for the image.
func checkCode(t *testing.T, i image, err error) {
	t.Helper()
	var violation layout.Violation
	switch {
	case i.code == 0 && isViolation(err):
		t.Errorf("%s is in order, and refused with %v", i.name, err)
	case i.code != 0 && (!errors.As(err, &violation) || uint64(violation) != i.code):
		t.Errorf("%s ends with %v, want violation %d", i.name, err, i.code)
	}
}

func isViolation(err error) bool {
	var violation layout.Violation
	return errors.As(err, &violation)
}

func TestRingImagesFromPeer(t *testing.T) {
	all := images(t, "ring")
	if len(all) < 75 {
		t.Fatalf("%d images of rings, want 75 or more", len(all))
	}
	for _, trust := range []Trust{TrustAuto, TrustUntrusted} {
		listener, _ := listenForHostile(t, readerSettings(trust))
		for _, i := range all {
			peer, accepted := dialHostile(t, listener)
			if accepted.Peer.Trusted == (trust == TrustUntrusted) {
				t.Fatalf("the peer is trusted: %v", accepted.Peer.Trusted)
			}
			peer.sendSegments(t, i)
			for position := uint64(0); position < i.from; position += layout.SlotBytes {
				peer.fill(position)
				if err := readAll(accepted.Receiver, 1); err != nil {
					t.Fatalf("%s: before the image: %v", i.name, err)
				}
			}
			// The reader does not read at this moment, so the bytes of the image may be written in
			// any order.
			peer.memory.own.ring.Write(0, i.bytes)
			checkCode(t, i, readAll(accepted.Receiver, -1))
		}
	}
}

func TestSocketImagesFromPeer(t *testing.T) {
	all := images(t, "socket")
	if len(all) < 14 {
		t.Fatalf("%d images of sockets, want 14 or more", len(all))
	}
	s := readerSettings(TrustAuto)
	s.Transports = TransportSocket
	listener, _ := listenForHostile(t, s)
	s.Role = layout.RoleConnector
	for _, i := range all {
		ctx, cancel := context.WithTimeout(context.Background(), testTime)
		c, err := Dial(ctx, listener.Address(), &s, testTime)
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := listener.Accept(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		conn := c.carrier.(*socketCarrier).conn
		if _, err := conn.Write(i.bytes); err != nil {
			t.Fatal(err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := accepted.Receiver.SetDeadline(time.Now().Add(testTime)); err != nil {
			t.Fatal(err)
		}
		checkCode(t, i, readAll(accepted.Receiver, 1<<30))
		for _, c := range []*Connection{c, accepted} {
			c.Interrupt()
			c.Close()
		}
	}
}

func TestControlImagesFromPeer(t *testing.T) {
	all := images(t, "control")
	if len(all) < 14 {
		t.Fatalf("%d images of control sockets, want 14 or more", len(all))
	}
	listener, _ := listenForHostile(t, readerSettings(TrustAuto))
	for _, i := range all {
		peer, accepted := dialHostile(t, listener)
		peer.sendControl(t, i.bytes)
		if i.code == 0 {
			memory := accepted.carrier.(*sharedCarrier).sharedMemory
			for number := uint32(1); number <= 2; number++ {
				descriptor, err := memory.socket.takeSegment(number)
				if err != nil {
					t.Errorf("%s: segment %d: %v", i.name, number, err)
					continue
				}
				sys.CloseDescriptor(descriptor)
			}
			continue
		}
		checkCode(t, i, readAll(accepted.Receiver, 1))
	}
}

// sendControl sends the frames of an image over the control socket, each in a message of its own
// with as many descriptors as the frame names.
func (p *hostilePeer) sendControl(t *testing.T, b []byte) {
	t.Helper()
	eventfd, err := sys.NewEventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer eventfd.Close()
	for len(b) > 0 {
		size, count := 1, 0
		if b[0] != layout.ControlDoorbell {
			size, count = len(b), 1
			if f, isWhole, err := layout.ParseControl(b); err == nil && isWhole {
				size, count = f.Length, f.Descriptors
			}
		}
		descriptors := make([]int, count)
		for i := range descriptors {
			descriptors[i] = eventfd.Descriptor()
		}
		var failure error
		err := p.memory.socket.raw.Control(func(fd uintptr) {
			_, failure = sys.Send(int(fd), b[:size], descriptors...)
		})
		// The error is ignored: the peer may have refused an earlier frame of the image and closed
		// the connection, which is correct.
		if err != nil || failure != nil && !errors.Is(failure, sys.ErrHungUp) {
			t.Fatal(err, failure)
		}
		b = b[size:]
	}
}

// A peer writes impossible values into the words for consumed records or released blocks. The
// sender that reads these words must end the connection.
func TestWrongWordsOfPeerEndSender(t *testing.T) {
	for name, c := range map[string]struct {
		word, value uint64
		size        int // of the messages that are sent
		code        layout.Violation
	}{
		"consumed ahead":     {layout.ControlConsumed, 1 << 20, 100, layout.ViolationConsumed},
		"consumed in a slot": {layout.ControlConsumed, 1, 100, layout.ViolationConsumed},
		"released ahead":     {layout.ControlReleased, 100, 2000, layout.ViolationReleased},
	} {
		t.Run(name, func(t *testing.T) {
			listener, _ := listenForHostile(t, readerSettings(TrustAuto))
			peer, accepted := dialHostile(t, listener)
			peer.memory.own.control.Publish(c.word, c.value)
			var err error
			for err == nil {
				if err = accepted.Sender.TryMessage(0, make([]byte, c.size), Credit{}); err == nil {
					err = accepted.Sender.Commit()
				}
			}
			var violation layout.Violation
			if !errors.As(err, &violation) || violation != c.code {
				t.Errorf("sending ends with %v, want %v", err, c.code)
			}
			if _, _, again := accepted.Receiver.Next(); !errors.Is(again, c.code) {
				t.Errorf("receiving ends with %v", again)
			}
		})
	}
}

func TestBlockThatWasNotGivenEndsSender(t *testing.T) {
	listener, _ := listenForHostile(t, readerSettings(TrustAuto))
	peer, accepted := dialHostile(t, listener)
	send := func() error {
		err := accepted.Sender.TryMessage(0, make([]byte, 2000), Credit{})
		if err == nil {
			err = accepted.Sender.Commit()
		}
		return err
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	peer.memory.own.releases.Store(0, 12345)
	peer.memory.own.control.Publish(layout.ControlReleased, 1)
	if err := send(); !errors.Is(err, layout.ViolationBlock) {
		t.Errorf("sending ends with %v", err)
	}
}

func TestListenerSurvivesHostileFrames(t *testing.T) {
	all := images(t, "frame")
	listener, refused := listenForHostile(t, readerSettings(TrustAuto))
	count := 0
	for _, i := range all {
		if i.code == 0 || !strings.HasPrefix(i.name, "frame-hello") {
			continue
		}
		count++
		conn, err := net.Dial("unix", listener.Address().Name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(i.bytes); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(i.name, "cut") {
			_ = conn.Close()
		}
		select {
		case err := <-refused:
			if number := Number(err); number != layout.ErrorHandshakeViolation &&
				number != layout.ErrorNotPartywall && number != layout.ErrorHandshakeHangUp {
				t.Errorf("%s: %v", i.name, err)
			}
		case <-time.After(testTime):
			t.Errorf("%s is not refused", i.name)
		}
		_ = conn.Close()
	}
	if count < 8 {
		t.Errorf("%d frames HELLO, want 8 or more", count)
	}
	// After the connection of the hostile peer has ended, the listener must still accept other
	// peers.
	dialHostile(t, listener)
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
)

// noRaw is a socket without a connection: the tests pass received bytes to the control socket
// themselves.
type noRaw struct{ syscall.RawConn }

func (noRaw) Control(func(uintptr)) error   { return net.ErrClosed }
func (noRaw) Read(func(uintptr) bool) error { return net.ErrClosed }

// detachedControlSocket returns a control socket to which nothing is connected.
func detachedControlSocket() *controlSocket {
	return &controlSocket{
		conn: new(net.UnixConn), raw: noRaw{}, segmentsMax: 2, notified: func() {},
	}
}

// firstNumber is the first of the numbers that stand for descriptors in these tests. No process has
// so many descriptors, so closing one of these numbers does nothing.
const firstNumber = 1 << 30

// FuzzControlSocket passes arbitrary bytes and descriptors to a control socket. Each byte of cuts
// is the size of one piece; its three lowest bits are the number of descriptors that come with the
// piece. The control socket must not keep more and more of what the peer sends, and must keep no
// descriptor twice.
func FuzzControlSocket(f *testing.F) {
	for _, i := range images(f, "control") {
		f.Add(i.bytes, []byte{0x41})
		f.Add(i.bytes, []byte{8, 9, 8, 9, 8, 9})
	}
	f.Fuzz(func(t *testing.T, b, cuts []byte) {
		c := detachedControlSocket()
		next := firstNumber
		for len(b) > 0 {
			size, count := 64, 1
			if len(cuts) > 0 {
				size, count, cuts = int(cuts[0]), int(cuts[0]&7), cuts[1:]
			}
			size = min(max(size, 1), len(b))
			for range count {
				c.unclaimed = append(c.unclaimed, next)
				next++
			}
			err := c.take(b[:size])
			b = b[size:]
			if err != nil {
				if !isViolation(err) {
					t.Fatalf("the error is %v, which is no violation", err)
				}
				break
			}
			if len(c.unclaimed) > layout.ControlDescriptorsMax ||
				len(c.frame) >= layout.ControlFrameMax {
				t.Fatalf("%d descriptors and %d bytes wait", len(c.unclaimed), len(c.frame))
			}
			if len(c.segments) == c.segmentsMax {
				mustClaim(t, c)
			}
		}
		checkKept(t, c, next)
		c.hangUp()
	})
}

// mustClaim takes from the control socket the descriptor of the segment that has come first.
func mustClaim(t *testing.T, c *controlSocket) {
	want := c.segments[0]
	if found, err := c.takeSegment(want.number); err != nil || found != want.descriptor {
		t.Fatalf("segment %d has descriptor %d, want %d (%v)", want.number, found, want.descriptor, err)
	}
	for _, left := range c.segments {
		if left.number <= want.number {
			t.Fatalf("segment %d is left behind segment %d", left.number, want.number)
		}
	}
}

// checkKept checks that the control socket keeps only descriptors that have come, each of them
// once, and at most as many segments as it may.
func checkKept(t *testing.T, c *controlSocket, next int) {
	kept := map[int]bool{}
	numbers := append([]int(nil), c.unclaimed...)
	for _, segment := range c.segments {
		numbers = append(numbers, segment.descriptor)
	}
	for _, number := range numbers {
		if kept[number] || number < firstNumber || number >= next {
			t.Fatalf("descriptor %d is kept twice, or never came", number-firstNumber)
		}
		kept[number] = true
	}
	if len(c.segments) > c.segmentsMax {
		t.Fatalf("%d segments are kept", len(c.segments))
	}
}

// detachedMemory returns the state of a connection over shared memory whose peer has these bytes in
// its record ring. Nothing is mapped, and nothing is connected.
func detachedMemory(ring []byte, asleepRoom uint64, isTrusted bool) *sharedMemory {
	unmap := func() error { return nil }
	own := mem.Allocate(layout.PageBytes)
	content, control := mem.Allocate(hostileRingBytes), mem.Allocate(layout.PageBytes)
	content.Write(0, ring[:min(len(ring), hostileRingBytes)])
	control.Store(layout.ControlAsleepRoom, asleepRoom)
	return &sharedMemory{
		socket: detachedControlSocket(),
		own:    &ownRegion{mapping: newMapping(unmap), control: own, releases: mem.Allocate(8 * 8)},
		peer: &peerRegion{
			mapping: newMapping(unmap), header: layout.Region{Size: hostileRegionSize},
			control: control.Peer(), ring: content.Peer(),
			slab: mem.Allocate(hostileRegionSize - 16384).Peer(),
		},
		isTrusted: isTrusted, records: &doorbell{}, room: &doorbell{},
	}
}

// FuzzSharedReceiver lets a receiver read any bytes as the record ring of a peer, trusted or not.
// Each error must be a violation, each message within the limits of the receiver, and each block
// returned to the peer once.
func FuzzSharedReceiver(f *testing.F) {
	for _, i := range images(f, "ring") {
		f.Add(i.bytes, i.from, uint64(0), true)
		f.Add(i.bytes, i.from, uint64(1), false)
	}
	f.Fuzz(func(t *testing.T, ring []byte, from, asleepRoom uint64, isTrusted bool) {
		trust := TrustUntrusted
		if isTrusted {
			trust = TrustAuto
		}
		settings := readerSettings(trust)
		memory := detachedMemory(ring, asleepRoom, isTrusted)
		r := newSharedReceiver(memory, &settings)
		for position := from % (2 * hostileRingBytes) &^ (layout.SlotBytes - 1); position > 0; {
			r.consumer.Advance(layout.Header{Position: r.consumer.Position()})
			position -= layout.SlotBytes
		}
		err := readAny(t, r)
		if err != nil && !isViolation(err) {
			t.Fatalf("the error is %v, which is no violation", err)
		}
		if _, _, again := r.Next(); (again == nil) != (err == nil) || err != nil && !errors.Is(again, err) {
			t.Errorf("reading ends with %v, and then with %v", err, again)
		}
		released := memory.own.control.Load(layout.ControlReleased)
		if released != r.counts.blobs {
			t.Errorf("%d blocks of %d are returned", released, r.counts.blobs)
		}
		r.close()
		if users := memory.peer.users.Load(); users != 1 {
			t.Errorf("the region of the peer has %d users", users)
		}
	})
}

// readAny reads records until there is none, or an error occurs. It calls Take for every second
// message, and CopyTo for the others.
func readAny(t *testing.T, r *sharedReceiver) error {
	into := make([]byte, 100)
	for count := 0; ; count++ {
		record, isThere, err := r.Next()
		switch {
		case err != nil || !isThere:
			return err
		case !record.IsMessage():
			_ = r.Payload()
		case uint64(record.Len) > r.limits.MessageMax:
			t.Fatalf("a message of %d bytes", record.Len)
		case count%2 == 0:
			message := r.Take()
			if len(message.Bytes()) != record.Len {
				t.Fatalf("a message of %d bytes has %d", record.Len, len(message.Bytes()))
			}
			message.Release()
		default:
			r.CopyTo(into)
		}
		r.Done()
	}
}

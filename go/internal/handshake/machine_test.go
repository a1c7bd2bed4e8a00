// SPDX-License-Identifier: MIT OR Apache-2.0

package handshake

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/transcript"
)

func helloOf(nonce byte) layout.Hello {
	return layout.Hello{
		VersionMin: layout.ProtocolVersionMin, VersionMax: layout.ProtocolVersionMax,
		Features: layout.FeatureSHM | layout.FeatureSocket, Service: layout.ServiceChannel,
		MapMax: 1 << 20, MessageMax: 1 << 20, PeerBlocksMax: 8, Nonce: [16]byte{nonce},
	}
}

// frugal is an [Environment] that makes no regions, so that every handshake agrees on the socket.
// It counts the descriptors of the peer that the machine gave it to close.
type frugal struct{ closed int }

func (*frugal) Judge(Sender, int) (bool, error) { return true, nil }
func (*frugal) MakeRegion([16]byte) (Offered, layout.FallbackReason) {
	return Offered{}, layout.ReasonMemory
}
func (f *frugal) MapRegion(int, layout.Expectation) (layout.FallbackReason, error) {
	f.closed++
	return layout.ReasonMap, nil
}
func (f *frugal) TakeDoorbells(int, int) error { f.closed += 2; return nil }
func (f *frugal) Close(int)                    { f.closed++ }

func TestTwoMachinesAgree(t *testing.T) {
	connector := New(Terms{Role: layout.RoleConnector, Hello: helloOf(1), Pidfd: -1}, &frugal{})
	acceptor := New(Terms{Role: layout.RoleAcceptor, Hello: helloOf(2), Pidfd: -1}, &frugal{})
	if err := connector.Start(); err != nil {
		t.Fatal(err)
	}
	if outcome, err := acceptor.Receive(Arrival{Bytes: connector.Flight().Bytes}); outcome != nil ||
		err != nil {
		t.Fatalf("the acceptor has %v, %v before READY", outcome, err)
	}
	connected, err := connector.Receive(Arrival{Bytes: acceptor.Flight().Bytes})
	if err != nil || connected == nil {
		t.Fatalf("the connector has %v, %v", connected, err)
	}
	accepted, err := acceptor.Receive(Arrival{Bytes: connector.Flight().Bytes})
	if err != nil || accepted == nil {
		t.Fatalf("the acceptor has %v, %v", accepted, err)
	}
	if connected.IsShared || accepted.IsShared || accepted.SessionID != connected.SessionID ||
		connected.Reason != layout.ReasonMemory || accepted.Reason != layout.ReasonMemory {
		t.Errorf("the sides disagree:\n%+v\n%+v", connected, accepted)
	}
}

func TestAcceptorAsksForNoByteAfterReady(t *testing.T) {
	acceptor := New(Terms{Role: layout.RoleAcceptor, Hello: helloOf(2), Pidfd: -1}, &frugal{})
	hello, offer := helloOf(1), layout.Offer{Transport: layout.TransportSocket, Reason: 1}
	if _, err := acceptor.Receive(Arrival{Bytes: offer.Append(hello.Append(nil))}); err != nil {
		t.Fatal(err)
	}
	ready := layout.Ready{Transport: layout.TransportSocket, Reason: 1}.Append(nil)
	for i, b := range ready {
		if wanted := acceptor.Wanted(); wanted != layout.ReadyBytes-i {
			t.Fatalf("wants %d bytes after %d of READY", wanted, i)
		}
		outcome, err := acceptor.Receive(Arrival{Bytes: []byte{b}})
		if err != nil || (outcome != nil) != (i == len(ready)-1) {
			t.Fatalf("byte %d: %v, %v", i, outcome, err)
		}
	}
}

func TestHelloOfTwoProcessesIsRefused(t *testing.T) {
	acceptor := New(Terms{Role: layout.RoleAcceptor, Hello: helloOf(2), Pidfd: -1}, &frugal{})
	hello := helloOf(1).Append(nil)
	a := Arrival{Bytes: hello[:20], Sender: Sender{IsKnown: true, PID: 1}}
	if _, err := acceptor.Receive(a); err != nil {
		t.Fatal(err)
	}
	a = Arrival{Bytes: hello[20:], Sender: Sender{IsKnown: true, PID: 2}}
	_, err := acceptor.Receive(a)
	var failure *Error
	if !errors.As(err, &failure) || failure.Number != layout.ErrorHandshakeViolation {
		t.Errorf("ends with %v", err)
	}
}

func TestLostDescriptorsMeanSocket(t *testing.T) {
	environment := &frugal{}
	acceptor := New(Terms{Role: layout.RoleAcceptor, Hello: helloOf(2), Pidfd: -1}, environment)
	hello, offer := helloOf(1), layout.Offer{
		Transport: layout.TransportSHM, RegionSize: 1 << 16,
		Descriptors: layout.Descriptors{layout.DescriptorRegion, layout.DescriptorRecords},
	}
	_, err := acceptor.Receive(Arrival{
		Bytes: offer.Append(hello.Append(nil)), Descriptors: []int{7}, IsTruncated: true,
	})
	if err != nil || environment.closed != 1 {
		t.Fatalf("%v, %d descriptors closed", err, environment.closed)
	}
	answer := acceptor.Flight().Bytes[layout.HelloBytes:]
	if got, err := layout.ParseOffer(answer); err != nil ||
		got.Transport != layout.TransportSocket || got.Reason != layout.ReasonDescriptors {
		t.Errorf("answers %+v, %v", got, err)
	}
}

// counting is an [Environment] with which memory can be shared. It counts how often the machine has
// given it each descriptor of the peer.
type counting struct{ closed map[int]int }

func (c *counting) Judge(_ Sender, pidfd int) (bool, error) {
	if pidfd >= 0 {
		c.closed[pidfd]++
	}
	return true, nil
}
func (*counting) MakeRegion([16]byte) (Offered, layout.FallbackReason) {
	return Offered{1001, 1002, 1003}, 0
}
func (c *counting) MapRegion(region int, _ layout.Expectation) (layout.FallbackReason, error) {
	c.closed[region]++
	return 0, nil
}
func (c *counting) TakeDoorbells(records, room int) error {
	c.closed[records]++
	c.closed[room]++
	return nil
}
func (c *counting) Close(descriptor int) { c.closed[descriptor]++ }

// sentIn returns the bytes that the peer sends in a transcript. It also returns numbers by which
// FuzzMachine cuts these bytes so that each descriptor comes with its own frame, where the format
// of the numbers allows this.
func sentIn(f *testing.F, script transcript.Transcript) (b, cuts []byte) {
	f.Helper()
	for _, line := range script.Lines {
		if line[0] != "send" || line[2] == "=" {
			continue
		}
		part, err := hex.DecodeString(line[2])
		if err != nil {
			f.Fatal(err)
		}
		count := strings.Count(line[3], ",") + 1
		if line[3] == "-" {
			count = 0
		}
		b = append(b, part...)
		cuts = append(cuts, byte(min(len(part), 255))&^3|byte(count&3))
	}
	return b, cuts
}

// FuzzMachine hands the bytes b to the machine of a handshake in pieces of arbitrary sizes, with
// arbitrary descriptors. Each byte of cuts is the size of one piece; its two lowest bits are the
// number of descriptors that come with the piece. The machine must give each descriptor exactly
// once to the code that uses or closes it.
func FuzzMachine(f *testing.F) {
	hello := helloOf(1)
	hello.Descriptors = layout.Descriptors{layout.DescriptorPidfd}
	offer := layout.Offer{
		Transport: layout.TransportSHM, RegionSize: 1 << 16, Descriptors: layout.Descriptors{
			layout.DescriptorRegion, layout.DescriptorRecords, layout.DescriptorRoom,
		},
	}
	ready := layout.Ready{Transport: layout.TransportSHM, Flags: layout.ReadyDoorbells}
	whole := ready.Append(offer.Append(hello.Append(nil)))
	f.Add(whole, []byte{128, 67, 40}, true)
	f.Add(whole, []byte{1, 2, 3, 4}, false)
	f.Add(layout.Reject{Code: 9, Text: "no"}.Append(nil), []byte{26}, true)
	for _, script := range transcript.All(f) {
		if b, cuts := sentIn(f, script); len(b) > 0 {
			f.Add(b, cuts, script.IsAcceptor())
		}
	}
	f.Fuzz(func(t *testing.T, b, cuts []byte, isAcceptor bool) {
		c := &counting{closed: map[int]int{}}
		terms := Terms{Hello: helloOf(2), Pidfd: -1, RegionSize: 1 << 16, MayTrust: true}
		if isAcceptor {
			terms.Role = layout.RoleAcceptor
		}
		m := New(terms, c)
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		m.Flight()
		given, isOver := 0, false
		for len(b) > 0 && !isOver {
			size := 64
			if len(cuts) > 0 {
				size, cuts = int(cuts[0]), cuts[1:]
			}
			a := Arrival{Bytes: b[:min(max(size, 1), len(b), m.Wanted())]}
			b = b[len(a.Bytes):]
			for range size & 3 {
				given++
				a.Descriptors = append(a.Descriptors, given)
			}
			outcome, err := m.Receive(a)
			isOver = outcome != nil || err != nil
			if flight := m.Flight().Bytes; err != nil && len(flight) > 0 {
				if _, err := layout.ParseReject(flight); err != nil {
					t.Errorf("answers a wrong handshake with %x", flight)
				}
			}
			if err != nil && outcome != nil {
				t.Errorf("%v and %v", outcome, err)
			}
		}
		if !isOver {
			_ = m.HangUp()
		}
		for descriptor := 1; descriptor <= given; descriptor++ {
			if c.closed[descriptor] != 1 {
				t.Errorf("descriptor %d was taken %d times", descriptor, c.closed[descriptor])
			}
		}
	})
}

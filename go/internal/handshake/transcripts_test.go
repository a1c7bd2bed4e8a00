// SPDX-License-Identifier: MIT OR Apache-2.0

package handshake

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/transcript"
)

// movesMax is the most transcripts that the test may leave out, because in them the side under test
// begins on the socket, which this module never does.
const movesMax = 7

// Ways in which the frames that the test, as the peer, sends one after the other are cut into
// pieces: not at all, at each frame, and at each byte. The outcome of the handshake must not depend
// on the cuts.
const (
	cutNever = iota
	cutFrames
	cutBytes
	cuts
)

func TestTranscriptsEndAsTheirOutcomesSay(t *testing.T) {
	all := transcript.All(t)
	played, skipped := 0, 0
	for _, script := range all {
		if script.BeginsOnSocket() {
			skipped++
			continue
		}
		for cut := range cuts {
			if cut != cutNever && script.Has("together") {
				continue
			}
			played++
			t.Run(fmt.Sprintf("%s/%d", script.Name(), cut), func(t *testing.T) { play(t, script, cut) })
		}
	}
	if played < 3*(len(all)-skipped)-10 || skipped > movesMax {
		t.Errorf("%d plays of %d transcripts, %d skipped", played, len(all), skipped)
	}
}

// play replays a transcript once, and checks the outcome. The test acts as the peer, and sends the
// peer's frames to the machine under test.
func play(t *testing.T, script transcript.Transcript, cut int) {
	p := newPlayer(t, script, cut)
	p.note(nil, p.machine.Start())
	for _, line := range script.Lines[1 : len(script.Lines)-1] {
		switch line[0] {
		case "set", "together":
		case "send":
			p.send(line[2], line[3])
		case "receive":
			p.flush()
			p.receive(line[1], line[2])
		case "close":
			p.flush()
			p.note(nil, p.machine.HangUp())
		case "silence":
			p.flush()
			p.note(nil, p.machine.TimeOut())
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	p.flush()
	p.check(script.Outcome())
}

// A player acts as the peer of the machine under test, and is also the machine's [Environment]. Its
// descriptors are only numbers; the map open says for which object each number stands.
type player struct {
	t        *testing.T
	cut      int
	machine  *Machine
	acceptor bool // the machine is an acceptor

	isUntrusted, isRefused bool
	mapMax                 uint64

	session   [16]byte
	entries   uint64
	lastHello []byte
	unsent    Arrival
	toReceive []byte

	next int
	open map[int]thing // descriptors that nobody has closed

	outcome *Outcome
	failure *Error
}

// A thing is an object for which a descriptor of the player stands, such as a region.
type thing struct {
	name   string
	region layout.Region
}

func newPlayer(t *testing.T, script transcript.Transcript, cut int) *player {
	p := &player{
		t: t, cut: cut, acceptor: script.IsAcceptor(),
		mapMax: 65 << 20, entries: 8, open: map[int]thing{},
	}
	hello := layout.Hello{
		VersionMin: layout.ProtocolVersionMin, VersionMax: layout.ProtocolVersionMax,
		Features: layout.FeatureSHM | layout.FeatureSocket, Service: layout.ServiceChannel,
		MessageMax: 64 << 20, PeerBlocksMax: 1024, SegmentsMax: 32, Nonce: NewNonce(),
	}
	for _, line := range script.Lines {
		if line[0] != "set" {
			continue
		}
		switch line[1] + " " + line[2] {
		case "transport socket":
			hello.Features, hello.FallbackReason = layout.FeatureSocket, layout.ReasonPolicy
		case "transport shm":
			hello.Features = layout.FeatureSHM
		case "address tcp":
			hello.Features, hello.FallbackReason = layout.FeatureSocket, layout.ReasonRemote
		case "trust no":
			p.isUntrusted = true
		case "admit no":
			p.isRefused = true
		default:
			bytes, err := strconv.ParseUint(line[2], 10, 64)
			if err != nil || line[1] != "map_max" {
				t.Fatalf("unknown setting %q", line)
			}
			p.mapMax = bytes
		}
	}
	hello.MapMax = p.mapMax
	role := uint32(layout.RoleConnector)
	if p.acceptor {
		role = layout.RoleAcceptor
	}
	p.machine = New(Terms{
		Role: role, Hello: hello, Pidfd: -1, RegionSize: 131072, MayTrust: !p.isUntrusted,
	}, p)
	return p
}

func (p *player) note(outcome *Outcome, err error) {
	p.t.Helper()
	if p.failure != nil {
		return
	}
	if outcome != nil {
		p.outcome = outcome
	}
	if err != nil && !errors.As(err, &p.failure) {
		p.t.Fatalf("the machine fails with %v", err)
	}
}

func (p *player) send(digits, descriptors string) {
	p.t.Helper()
	b := p.lastHello
	if digits != "=" {
		var err error
		if b, err = hex.DecodeString(digits); err != nil {
			p.t.Fatal(err)
		}
	}
	if hello, err := layout.ParseHello(b); err == nil {
		p.entries = hello.PeerBlocksMax
		if p.acceptor {
			p.session = hello.Nonce
		}
	}
	size := uint64(0)
	if offer, err := layout.ParseOffer(b); err == nil {
		size = offer.RegionSize
	}
	for name := range strings.SplitSeq(descriptors, ",") {
		if name != "-" {
			p.unsent.Descriptors = append(p.unsent.Descriptors, p.descriptor(name, size))
		}
	}
	switch p.cut {
	case cutBytes:
		for _, one := range b {
			p.unsent.Bytes = append(p.unsent.Bytes, one)
			p.flush()
		}
	default:
		p.unsent.Bytes = append(p.unsent.Bytes, b...)
		if p.cut == cutFrames {
			p.flush()
		}
	}
}

// flush hands the unsent bytes and descriptors of the peer to the machine under test, in pieces of
// at most the bytes that the machine wants.
func (p *player) flush() {
	a := p.unsent
	p.unsent = Arrival{}
	a.Sender = Sender{IsKnown: true, PID: 1, UID: 1, GID: 1}
	for len(a.Bytes) > 0 && p.failure == nil && p.outcome == nil {
		part := a
		part.Bytes = a.Bytes[:min(len(a.Bytes), p.machine.Wanted())]
		a.Bytes, a.Descriptors = a.Bytes[len(part.Bytes):], nil
		p.note(p.machine.Receive(part))
		flight := p.machine.Flight()
		p.toReceive = append(p.toReceive, flight.Bytes...)
	}
	// The kernel closes descriptors that come with bytes which nobody receives, and so does this
	// peer.
	for _, descriptor := range a.Descriptors {
		p.Close(descriptor)
	}
}

func (p *player) receive(tag, pattern string) {
	p.t.Helper()
	flight := p.machine.Flight()
	p.toReceive = append(p.toReceive, flight.Bytes...)
	size := len(pattern) / 2
	if len(p.toReceive) < size {
		p.t.Fatalf("%d bytes for %s, want %d; %v", len(p.toReceive), tag, size, p.failure)
	}
	frame := p.toReceive[:size]
	p.toReceive = p.toReceive[size:]
	found := hex.EncodeToString(frame)
	for i := range found {
		if pattern[i] != '.' && pattern[i] != found[i] {
			p.t.Fatalf("%s is\n%s, want\n%s", tag, found, pattern)
		}
	}
	if tag == "HELLO" {
		p.lastHello = frame
		if hello, err := layout.ParseHello(frame); err == nil && !p.acceptor {
			p.session = hello.Nonce
		}
	}
}

func (p *player) check(want string) {
	p.t.Helper()
	p.toReceive = append(p.toReceive, p.machine.Flight().Bytes...)
	found := "nothing"
	switch {
	case p.failure != nil:
		code := layout.RejectCode(0)
		if reject, err := layout.ParseReject(p.toReceive); err == nil {
			code = reject.Code
		}
		found = fmt.Sprintf("fails %d %d", p.failure.Number, code)
	case p.outcome != nil && p.outcome.IsShared:
		found = "shm"
	case p.outcome != nil:
		found = fmt.Sprintf("socket %d", p.outcome.Reason)
	}
	if found != want {
		p.t.Errorf("ends with %q, want %q (%v)", found, want, p.failure)
	}
	// The machine must have given each descriptor of the peer to a method that closes it, so none
	// is open.
	for descriptor, thing := range p.open {
		p.t.Errorf("descriptor %d (%s) leaks", descriptor, thing.name)
	}
}

// descriptor returns a new number that stands for a descriptor of the object that the transcript
// names. If the object is a region, its name also says which field of its header is wrong.
func (p *player) descriptor(name string, size uint64) int {
	role := uint32(layout.RoleAcceptor)
	if p.acceptor {
		role = layout.RoleConnector
	}
	entries := max(p.entries, 8)
	session := p.session
	switch name {
	case "region-session":
		session[15] ^= 1
	case "region-role":
		role = 1 - role
	case "region-size":
		size *= 2
	case "region-entries":
		entries /= 2
	}
	p.next++
	p.open[p.next] = thing{name, layout.Region{
		Size: size, RingOffset: 8192, RingSize: 4096, ReleaseOffset: 12288,
		ReleaseEntries: entries, SlabOffset: 16384, SlabSize: size - 16384,
		SessionID: session, Role: role,
	}}
	return p.next
}

// use closes a descriptor of the player, and returns the object for which it stood.
func (p *player) use(descriptor int) thing {
	used, ok := p.open[descriptor]
	if !ok {
		p.t.Errorf("descriptor %d is not open", descriptor)
	}
	delete(p.open, descriptor)
	return used
}

func (p *player) Close(descriptor int) { p.use(descriptor) }

func (p *player) Judge(sender Sender, pidfd int) (bool, error) {
	if pidfd >= 0 {
		if name := p.use(pidfd).name; name != "pidfd" {
			return false, BadDescriptor(fmt.Errorf("%s is no pidfd of the peer", name))
		}
	}
	if p.isRefused {
		return false, NotAdmitted(fmt.Errorf("user %d", sender.UID))
	}
	return !p.isUntrusted, nil
}

func (p *player) MakeRegion([16]byte) (Offered, layout.FallbackReason) {
	return Offered{1001, 1002, 1003}, 0
}

func (p *player) MapRegion(region int, want layout.Expectation) (layout.FallbackReason, error) {
	used := p.use(region)
	if !strings.HasPrefix(used.name, "region") || used.region.Size != want.Size ||
		want.Size > p.mapMax {
		return 0, BadDescriptor(fmt.Errorf("%s of %d bytes", used.name, used.region.Size))
	}
	if _, err := layout.ParseRegion(used.region.Append(nil), want); err != nil {
		return 0, Broken(layout.ViolationRegionHeader)
	}
	return 0, nil
}

func (p *player) TakeDoorbells(records, room int) error {
	for _, descriptor := range []int{records, room} {
		if name := p.use(descriptor).name; name != "eventfd" {
			defer p.forget(records, room)
			return BadDescriptor(fmt.Errorf("%s is no doorbell", name))
		}
	}
	return nil
}

func (p *player) forget(descriptors ...int) {
	for _, descriptor := range descriptors {
		delete(p.open, descriptor)
	}
}

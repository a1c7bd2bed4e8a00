// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"math/bits"
	"os"
	"time"

	"partywall.test/go/internal/handshake"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/wait"
)

// Trust says whom a side trusts (SPEC 9.1).
type Trust uint8

// The kinds of trust.
const (
	TrustAuto      Trust = iota // a process of the same user in the same namespaces
	TrustEveryone               // every peer
	TrustUntrusted              // no peer
)

// Transports says which transports a side accepts.
type Transports uint8

// The choices of transports.
const (
	TransportAny Transports = iota
	TransportSHM
	TransportSocket
)

// Settings are what one side brings to a connection. Each field is set.
type Settings struct {
	Role       uint32 // layout.RoleConnector or layout.RoleAcceptor
	Service    uint32
	Address    string // of the listener, for tools
	Transports Transports
	Trust      Trust
	// Admit returns why a peer is not admitted; nil admits all.
	Admit func(Peer) error

	// OneDoorbell makes one doorbell for records and room, for a goroutine that waits for both.
	OneDoorbell bool

	Wait       wait.Mode
	SpinBudget time.Duration

	RingBytes     uint64
	PeerBlocksMax uint64
	MemoryMax     uint64 // of the segments of this side, in bytes
	MessageMax    uint64 // that this side receives, in bytes
	MapMax        uint64 // of the peer's region and segments, in bytes
	SegmentsMax   uint32 // of the peer
	InlineMax     uint64 // longest message in a record of the ring, in bytes
	IdleMemory    time.Duration

	StreamWindow uint64
	StreamsMax   uint32

	// NewChecker returns the rules for the order of the records that the peer sends. The segments
	// are nil on a socket; the rules add and retire those that records announce.
	NewChecker func(layout.Limits, *layout.Segments) Checker
}

// A Checker knows in which order records may come. It is called once for each record but PAD, in
// their order. The payload is only read as far as the record is no message: that of DATA may be the
// peer's to change.
type Checker interface {
	Receive(h layout.Header, payload []byte) error
}

// region returns the header of the region of this side, without the fields of one connection.
func (s *Settings) region() layout.Region {
	r := layout.Region{
		RingOffset:     layout.ControlOffset + layout.PageBytes,
		RingSize:       s.RingBytes,
		ReleaseEntries: s.PeerBlocksMax,
		OwnerPID:       uint32(os.Getpid()),
		Role:           s.Role,
		Service:        s.Service,
	}
	r.ReleaseOffset = r.RingOffset + r.RingSize
	r.SlabOffset = roundUp(r.ReleaseOffset+8*r.ReleaseEntries, layout.PageBytes)
	r.Size = roundUp(r.SlabOffset+slabBytesMin, layout.GrainBytes)
	r.SlabSize = r.Size - r.SlabOffset
	return r
}

// limits returns those that the peer keeps.
func (s *Settings) limits() layout.Limits {
	return layout.Limits{
		MapMax: s.MapMax, MessageMax: s.MessageMax, SegmentsMax: s.SegmentsMax,
	}
}

// hello returns the HELLO of this side. The reason says why it cannot share memory, or is 0.
func (s *Settings) hello(obstacle layout.FallbackReason) layout.Hello {
	h := layout.Hello{
		VersionMin: layout.ProtocolVersionMin, VersionMax: layout.ProtocolVersionMax,
		Service: s.Service, FallbackReason: obstacle,
		MapMax: s.MapMax, MessageMax: s.MessageMax, PeerBlocksMax: s.PeerBlocksMax,
		SegmentsMax: s.SegmentsMax, PID: uint32(os.Getpid()), Nonce: handshake.NewNonce(),
	}
	if s.Service == layout.ServiceSession {
		h.StreamWindow, h.StreamsMax = s.StreamWindow, s.StreamsMax
	}
	if obstacle == 0 {
		h.Features |= layout.FeatureSHM
	}
	if s.Transports != TransportSHM {
		h.Features |= layout.FeatureSocket
	}
	return h
}

// sendLimits are those that a sender keeps, its own and the peer's.
type sendLimits struct {
	messageMax  uint64
	memoryMax   uint64 // of the segments, in bytes
	segmentsMax int
	blocksMax   uint32
}

// sendLimits returns the limits of this side's sender, whose peer sent this HELLO.
func (s *Settings) sendLimits(peer layout.Hello, regionSize uint64) sendLimits {
	mapped := uint64(0)
	if peer.SegmentsMax > 0 && peer.MapMax > regionSize {
		mapped = min(peer.MapMax, bytesMax) - regionSize
	}
	blocks := max(s.PeerBlocksMax, blocksMin)
	return sendLimits{
		messageMax:  peer.MessageMax,
		memoryMax:   min(roundUp(min(s.MemoryMax, bytesMax), layout.GrainBytes), roundDown(mapped)),
		segmentsMax: int(min(peer.SegmentsMax, segmentsBound)),
		// A side reserves no memory in proportion to a limit of the peer (SPEC 2.3).
		blocksMax: uint32(min(peer.PeerBlocksMax, blocks, blocksBound)),
	}
}

func roundUp(n, unit uint64) uint64 {
	sum, carry := bits.Add64(n, unit-1, 0)
	if carry != 0 {
		return n / unit * unit
	}
	return sum / unit * unit
}

func roundDown(n uint64) uint64 { return n / layout.GrainBytes * layout.GrainBytes }

const (
	// slabBytesMin is the smallest slab of a region. Rounding the region up to whole grains adds to
	// it.
	slabBytesMin = 48 << 10
	// bytesMax bounds the memory of a sender, whatever both sides allow.
	bytesMax = 1 << 46
	// blocksMin is how many blocks a sender has at least, if the peer allows.
	blocksMin = 1024
	// blocksBound bounds the blocks of a sender, whatever the peer allows.
	blocksBound = 1 << 16
	// segmentsBound bounds the segments of a sender, whatever the peer allows.
	segmentsBound = 1 << 10
)

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

// Trust says which peers a side trusts (SPEC 9.1).
type Trust uint8

// The values of [Trust].
const (
	TrustAuto      Trust = iota // a process of the same user in the same namespaces
	TrustEveryone               // every peer
	TrustUntrusted              // no peer
)

// Transports says which transports a side accepts.
type Transports uint8

// The values of [Transports]: both transports, shared memory alone, or the socket alone.
const (
	TransportAny Transports = iota
	TransportSHM
	TransportSocket
)

// Settings are the settings of one side of a connection. Defaults are already filled in: no field
// has a value that stands for a default.
type Settings struct {
	Role       uint32 // layout.RoleConnector or layout.RoleAcceptor
	Service    uint32
	Address    string // of the listener, for tools
	Transports Transports
	Trust      Trust
	// Admit returns an error for a peer that must not connect. If Admit is nil, every peer may
	// connect.
	Admit func(Peer) error

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

	// NewChecker returns the checker of the records that the peer sends. The segments are nil on a
	// socket; otherwise the checker adds and removes segments as the peer's records announce.
	NewChecker func(layout.Limits, *layout.Segments) Checker
}

// A Checker checks the order and the payloads of the peer's records. It is called once for each
// record other than PAD, in their order. It does not read the bytes of messages, because the peer
// may still change the payload of a DATA.
type Checker interface {
	Receive(h layout.Header, payload []byte) error
}

// region returns the header of this side's region, except for the fields that differ from one
// connection to another.
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

func (s *Settings) limits() layout.Limits {
	return layout.Limits{
		MapMax: s.MapMax, MessageMax: s.MessageMax, SegmentsMax: s.SegmentsMax,
	}
}

// hello returns the HELLO of this side. The argument obstacle is the reason why this side cannot
// share memory, or 0 if it can.
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

// sendLimits are the limits that a sender observes. They follow from this side's settings and the
// peer's HELLO.
type sendLimits struct {
	messageMax  uint64
	memoryMax   uint64 // of the segments, in bytes
	segmentsMax int
	blocksMax   uint32
}

// sendLimits returns the limits that this side's sender observes towards a peer that has sent this
// HELLO.
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
		// The peer's limit is itself bounded here, so that the peer cannot decide how much memory
		// this side reserves (SPEC 2.3).
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
	// slabBytesMin is the least size of a region's slab in bytes. The size of a region is rounded
	// up to a multiple of 64 KiB, and what the rings leave of it is the slab.
	slabBytesMin = 48 << 10
	// bytesMax bounds the shared memory of a sender in bytes, even if the settings of both sides
	// allow more.
	bytesMax = 1 << 46
	// blocksMin is the number of blocks that a sender may have in flight if the peer allows as
	// many. It applies even if PeerBlocksMax, which this side states for its peer, is less.
	blocksMin = 1024
	// blocksBound bounds the number of blocks of a sender, even if the peer allows more: the peer
	// must not decide how much memory this process uses.
	blocksBound = 1 << 16
	// segmentsBound bounds the number of segments of a sender, even if the peer allows more: the
	// peer must not decide how much memory this process uses.
	segmentsBound = 1 << 10
)

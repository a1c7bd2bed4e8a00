// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"fmt"
	"io/fs"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mux"
	"partywall.test/go/internal/sys"
	"partywall.test/go/internal/wait"
	"partywall.test/go/internal/wire"
)

// TransportPolicy says which transports a side accepts.
type TransportPolicy uint8

// The values of [TransportPolicy], of which TransportAuto is the default.
const (
	// TransportAuto uses shared memory if both sides can, and the socket otherwise.
	TransportAuto TransportPolicy = iota
	// TransportSharedMemory uses shared memory alone; without it connecting fails.
	TransportSharedMemory
	// TransportSocket uses the socket, even if memory could be shared.
	TransportSocket
)

// TrustPolicy says which peers a side trusts. A message of a trusted peer is read where it lies. A
// message of an untrusted peer is copied first, because the peer could change it.
type TrustPolicy uint8

// The values of [TrustPolicy], of which TrustAuto is the default.
const (
	// TrustAuto trusts a process that certainly runs as the same user in the same namespaces.
	TrustAuto TrustPolicy = iota
	// TrustEveryone trusts every peer as if it ran as the same user.
	TrustEveryone
	// TrustNobody trusts no peer.
	TrustNobody
)

// Wait says how a goroutine waits for a message, or for room.
type Wait uint8

// The values of [Wait].
const (
	// WaitAdaptive polls for at most SpinBudget and then sleeps. While polling finds nothing, the
	// time of polling shrinks to zero. It is zero under a CPU quota, and where both processes have
	// one CPU, because polling would keep the peer from running there.
	WaitAdaptive Wait = iota
	// WaitSpin polls until a message or room comes: the least latency, at the price of a whole
	// processor.
	WaitSpin
	// WaitPark sleeps at once, except that a peer that waits for this very processor runs first.
	WaitPark
)

// BackPressure says what Send does while there is no room for the message.
type BackPressure uint8

// The values of [BackPressure], of which BackPressureBlock is the default.
const (
	// BackPressureBlock waits for room until the deadline, if there is one.
	BackPressureBlock BackPressure = iota
	// BackPressureError makes Send return [ErrFull] at once.
	BackPressureError
	// BackPressureOverflow copies a message through the ring in fragments when there is no memory
	// for the whole message. While the ring is full, Send waits.
	BackPressureOverflow
)

// A Config has the settings of one side of a connection. The zero value and nil are the default. A
// Config that was passed to a function of this package must not be changed.
type Config struct {
	// Transport says which transports this side accepts.
	Transport TransportPolicy
	// Trust says which peers this side trusts.
	Trust TrustPolicy
	// Admit returns an error for a peer that is not admitted. If nil, every peer that can connect
	// is admitted. On an abstract address, "unix:@name", only peers with this process's effective
	// user are admitted, because such an address has no permissions.
	Admit func(Peer) error

	// Wait says how a goroutine waits for a message or for room.
	Wait Wait
	// SpinBudget is the longest time that WaitAdaptive polls. If zero, it is 50 µs.
	SpinBudget time.Duration
	// BackPressure says what Send does while there is no room for a message.
	BackPressure BackPressure

	// HandshakeTimeout bounds connecting, and each handshake of a listener. If zero, it is 5 s.
	HandshakeTimeout time.Duration
	// HandshakesMax bounds the handshakes that a listener has under way at a time. If zero, it is
	// 64.
	HandshakesMax int

	// RingBytes is the size of the ring of this side: a power of two from 4 KiB to 1 GiB. If zero,
	// it is 64 KiB.
	RingBytes uint64
	// MemoryMax bounds the shared memory of this side for long messages, in bytes. If zero, it is
	// 64 MiB.
	MemoryMax uint64
	// MessageMax is the longest message that this side receives, in bytes. If zero, it equals
	// MemoryMax.
	MessageMax uint64
	// MapMax bounds the memory of the peer that this side maps, in bytes. If zero, it is 1 MiB more
	// than MemoryMax.
	MapMax uint64
	// SegmentsMax bounds the number of segments, pieces of memory for long messages, that the peer
	// may add to its region. If zero, it is 32.
	SegmentsMax uint32
	// PeerBlocksMax bounds the long messages of the peer that this side has not released: a power
	// of two from 8 to 2^20. If zero, it is 1,024.
	PeerBlocksMax uint64
	// InlineMax is the longest message that is copied through the ring, in bytes: at most a quarter
	// of RingBytes, less 16. If zero, it is 1,024.
	InlineMax int
	// IdleMemoryTimeout is the time after which a segment, a piece of memory for long messages, is
	// freed if no message has used it. If zero, it is 5 s.
	IdleMemoryTimeout time.Duration

	// StreamWindow bounds the unread bytes of each stream of a session. If zero, it is 256 KiB.
	StreamWindow uint64
	// StreamsMax bounds the streams of a session that the peer has open at a time. If zero, it is
	// 1,024.
	StreamsMax uint32
	// Linger bounds how long closing a session waits for a peer that does not read. If zero, it is
	// 5 s.
	Linger time.Duration

	// SocketMode is the mode of the socket file of a listener. If zero, it is 0600.
	SocketMode fs.FileMode
	// AllowRemote lets a listener listen on addresses that other hosts reach. TCP is not encrypted,
	// and identifies no peer.
	AllowRemote bool
	// OnRefused is called with the reason when a listener refuses a connection, or the connection
	// fails during its handshake. It may be called by several goroutines at once. If nil, refusals
	// are silent.
	OnRefused func(error)
}

func (c *Config) channelSettings(role uint32, a wire.Address) (wire.Settings, error) {
	s, err := c.settings(role, layout.ServiceChannel, a)
	s.NewChecker = newChecker
	return s, err
}

func (c *Config) sessionSettings(role uint32, a wire.Address) (wire.Settings, error) {
	s, err := c.settings(role, layout.ServiceSession, a)
	s.NewChecker = mux.NewChecker
	return s, err
}

// settings returns the settings of a connection: the values of the configuration c, and the default
// where c has zero. The error names a setting whose value is not allowed.
func (c *Config) settings(role, service uint32, a wire.Address) (wire.Settings, error) {
	if c == nil {
		c = &Config{}
	}
	memory := orDefault(c.MemoryMax, 64<<20)
	s := wire.Settings{
		Role: role, Service: service, Address: a.String(),
		Transports:    wire.Transports(c.Transport),
		Trust:         wire.Trust(c.Trust),
		Admit:         c.admission(a),
		Wait:          wait.Mode(c.Wait),
		SpinBudget:    orDefault(c.SpinBudget, 50*time.Microsecond),
		RingBytes:     orDefault(c.RingBytes, 64<<10),
		PeerBlocksMax: orDefault(c.PeerBlocksMax, 1024),
		MemoryMax:     memory,
		MessageMax:    orDefault(c.MessageMax, memory),
		MapMax:        orDefault(c.MapMax, memory+1<<20),
		SegmentsMax:   orDefault(c.SegmentsMax, 32),
		InlineMax:     orDefault(uint64(max(c.InlineMax, 0)), 1024),
		IdleMemory:    orDefault(c.IdleMemoryTimeout, 5*time.Second),
		StreamWindow:  orDefault(c.StreamWindow, 256<<10),
		StreamsMax:    orDefault(c.StreamsMax, 1024),
	}
	wrong := func(setting string, found uint64, wanted string) error {
		text := fmt.Sprintf("Config.%s is %d: it must be %s", setting, found, wanted)
		return &wire.Failure{Number: layout.ErrorSetting, Text: text}
	}
	switch {
	case c.Transport > TransportSocket:
		return s, wrong("Transport", uint64(c.Transport), "one of the values of TransportPolicy")
	case c.Trust > TrustNobody:
		return s, wrong("Trust", uint64(c.Trust), "one of the values of TrustPolicy")
	case c.Wait > WaitPark:
		return s, wrong("Wait", uint64(c.Wait), "one of the values of Wait")
	case c.BackPressure > BackPressureOverflow:
		return s, wrong("BackPressure", uint64(c.BackPressure), "one of the values of BackPressure")
	case !layout.IsRingSize(s.RingBytes):
		return s, wrong("RingBytes", s.RingBytes, "a power of two from 4096 to 1073741824")
	case !layout.IsReleaseEntries(s.PeerBlocksMax):
		return s, wrong("PeerBlocksMax", s.PeerBlocksMax, "a power of two from 8 to 1048576")
	case c.InlineMax < 0 || s.InlineMax > s.RingBytes/4-layout.RecordHeaderBytes:
		return s, wrong("InlineMax", uint64(c.InlineMax), "at most a quarter of RingBytes, less 16")
	case memory > memoryBound:
		return s, wrong("MemoryMax", memory, "at most 2^46")
	case s.StreamsMax > layout.StreamsMax:
		return s, wrong("StreamsMax", uint64(s.StreamsMax), "at most 2147483647")
	case c.HandshakesMax < 0:
		return s, wrong("HandshakesMax", uint64(c.HandshakesMax), "at least 1")
	}
	return s, nil
}

// listenOptions returns the options of a listener: the values of the configuration c, and the
// default where c has zero.
func (c *Config) listenOptions() wire.ListenOptions {
	if c == nil {
		c = &Config{}
	}
	return wire.ListenOptions{
		HandshakeTimeout: c.handshakeTimeout(),
		HandshakesMax:    orDefault(c.HandshakesMax, 64),
		SocketMode:       orDefault(c.SocketMode, 0o600),
		AllowRemote:      c.AllowRemote,
		OnRefused:        c.onRefused(),
	}
}

func (c *Config) handshakeTimeout() time.Duration {
	if c == nil {
		return handshakeTimeout
	}
	return orDefault(c.HandshakeTimeout, handshakeTimeout)
}

func (c *Config) linger() time.Duration {
	if c == nil {
		return lingerTime
	}
	return orDefault(c.Linger, lingerTime)
}

func (c *Config) backPressure() BackPressure {
	if c == nil {
		return BackPressureBlock
	}
	return c.BackPressure
}

func (c *Config) onRefused() func(error) {
	if c.OnRefused == nil {
		return nil
	}
	return func(err error) { c.OnRefused(wrap("accept", err)) }
}

// admission returns the function that admits peers at the address a: c.Admit if it is set.
// Otherwise, on an abstract address it admits only peers of this process's user; on any other
// address the result is nil, and all peers are admitted.
func (c *Config) admission(a wire.Address) func(wire.Peer) error {
	switch {
	case c.Admit != nil:
		return func(p wire.Peer) error { return c.Admit(Peer(p)) }
	case a.IsAbstract():
		return func(p wire.Peer) error {
			if !p.HasCredentials || p.UID != sys.EffectiveUID() || p.UID == sys.OverflowUID() {
				return fmt.Errorf("%v: only user %d is admitted on an abstract name",
					p, sys.EffectiveUID())
			}
			return nil
		}
	}
	return nil
}

func orDefault[T comparable](value, byDefault T) T {
	var zero T
	if value == zero {
		return byDefault
	}
	return value
}

const (
	handshakeTimeout = 5 * time.Second
	lingerTime       = 5 * time.Second
	// memoryBound is the largest number of bytes to which a configuration may set a limit of
	// memory.
	memoryBound = 1 << 46
)

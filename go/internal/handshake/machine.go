// SPDX-License-Identifier: MIT OR Apache-2.0

// Package handshake holds the state machine of a handshake, for both roles (SPEC 2).
//
//	received bytes, descriptors ──▶ Machine ──▶ flights: frames to send, with their descriptors
//	                                   │
//	                                   ▼
//	                              Environment: admits the peer, makes and maps regions
//
// The machine has no socket and no clock: its caller passes received bytes to it, sends its
// flights, and tells it when the peer has hung up or the deadline has passed. Descriptors are
// numbers that only the [Environment] opens and closes.
package handshake

import (
	"crypto/rand"
	"strings"
	"unicode"

	"partywall.test/go/internal/layout"
)

// Terms are the role, the HELLO and the settings of one side of a handshake.
type Terms struct {
	// Role says whether this side is the connector or the acceptor: layout.RoleConnector or
	// layout.RoleAcceptor.
	Role uint32
	// Hello is the HELLO of this side, without its list of descriptors. The machine obeys the
	// limits and features that this HELLO states.
	Hello layout.Hello
	// Pidfd is a descriptor of this process (a pidfd) that is sent along with HELLO, or -1 if there
	// is none (SPEC 2.2).
	Pidfd int
	// RegionSize is the size of the region of this side in bytes.
	RegionSize uint64
	// MayTrust says whether this side could trust its peer. Only then does a connector offer its
	// doorbells.
	MayTrust bool
}

// NewNonce returns 16 random bytes for a HELLO.
func NewNonce() [16]byte {
	var nonce [16]byte
	// The error is ignored: since Go 1.24, Read of crypto/rand never returns one.
	_, _ = rand.Read(nonce[:])
	return nonce
}

// An Arrival holds the bytes and descriptors that one read of the socket returned.
type Arrival struct {
	Bytes       []byte
	Descriptors []int
	IsTruncated bool // descriptors were lost on the way
	Sender      Sender
}

// A Sender names the process that sent bytes, as the kernel verified it.
type Sender struct {
	IsKnown  bool // the socket brought credentials
	PID      int32
	UID, GID uint32
}

// A Flight holds the frames that a side sends in one message, and the descriptors that are sent
// with the first byte. The environment keeps these descriptors open.
type Flight struct {
	Bytes       []byte
	Descriptors []int
}

// Offered holds the descriptors that an OFFER of this side lists: its region, and its doorbells for
// records and for room.
type Offered struct {
	Region, Records, Room int
}

// An Environment carries out the steps of a handshake that need the operating system. A method that
// gets a descriptor as an argument owns the descriptor from then on.
type Environment interface {
	// Judge decides whether the sender of HELLO is admitted, and whether it is trusted (SPEC 9.1).
	// pidfd is -1 if the peer sent none. The error is an [*Error].
	Judge(sender Sender, pidfd int) (isTrusted bool, err error)
	// MakeRegion makes the region of this side and its doorbells. If that is impossible, it returns
	// the reason why memory cannot be shared.
	MakeRegion(session [16]byte) (Offered, layout.FallbackReason)
	// MapRegion checks and maps the region of the peer. The first result says why this side cannot
	// map the region, and the error, an [*Error], what is wrong with the region.
	MapRegion(region int, want layout.Expectation) (layout.FallbackReason, error)
	// TakeDoorbells takes over the peer's doorbells for records and for room, and checks them. The
	// error is an [*Error].
	TakeDoorbells(records, room int) error
	// Close closes a descriptor of the peer that the handshake does not need.
	Close(descriptor int)
}

// An Outcome is the result of a handshake: the peer's HELLO, and the transport on which both sides
// have agreed.
type Outcome struct {
	Peer      layout.Hello
	SessionID [16]byte
	IsTrusted bool
	// IsShared says that the transport is shared memory. If it is false, Reason says why the
	// transport is the socket.
	IsShared bool
	Reason   layout.FallbackReason
	// HasDoorbells says that the eventfds of both sides are the doorbells (SPEC 2.8).
	HasDoorbells bool
}

// A Machine is the state machine of one side of a handshake.
//
//	connector   ── HELLO, OFFER ▶  await HELLO, OFFER, READY  ── READY ▶  run
//	acceptor    await HELLO, OFFER  ── HELLO, OFFER, READY ▶  await READY ▶ run
//
// This side never asks to begin on the socket, and declines when its peer does (SPEC 2.9).
//
// After an error the handshake has ended, and the machine has closed each descriptor that it held.
type Machine struct {
	terms    Terms
	env      Environment
	awaiting string // tag of the next frame, or empty
	received []byte
	arrived  arrivedDescriptors
	sender   Sender
	isFirst  bool // no frame was received
	isReady  bool // READY was sent
	// isGreeted says that this side has sent HELLO without OFFER, because the peer asked to begin
	// on the socket.
	isGreeted bool
	flight    Flight

	ownReason      layout.FallbackReason // why this side offers no region, or 0
	peerReason     layout.FallbackReason // why the region of the peer is of no use, or 0
	isShared       bool                  // the peer offered shared memory
	hasDoorbells   bool                  // this side listed its doorbells
	peersDoorbells bool                  // the doorbells of the peer may be used
	outcome        Outcome
}

// New returns the machine of one side of a handshake, which has sent and received no frame yet.
func New(terms Terms, env Environment) *Machine {
	m := &Machine{terms: terms, env: env, awaiting: layout.HelloTag, isFirst: true}
	m.arrived.close = env.Close
	m.ownReason = terms.Hello.FallbackReason
	return m
}

// Start begins the handshake of a connector: it makes the region, and puts the frames HELLO and
// OFFER into the flight. For an acceptor, which waits for these frames, Start does nothing.
func (m *Machine) Start() error {
	if m.isAcceptor() {
		return nil
	}
	offered := Offered{}
	if m.sharesMemory() {
		offered, m.ownReason = m.env.MakeRegion(m.terms.Hello.Nonce)
		m.hasDoorbells = m.ownReason == 0 && m.terms.MayTrust
	}
	if m.ownReason != 0 && m.terms.Hello.Features&layout.FeatureSocket == 0 {
		return &Error{Number: layout.ErrorNoTransport, Reason: m.ownReason}
	}
	m.sendHelloAndOffer(offered)
	return nil
}

// IsUntouched reports whether this side has received no byte of the peer.
func (m *Machine) IsUntouched() bool { return m.isFirst && len(m.received) == 0 }

// Session returns the session id of the connection, which is known once the HELLO of the connector
// is.
func (m *Machine) Session() [16]byte {
	if m.isAcceptor() {
		return m.outcome.Peer.Nonce
	}
	return m.terms.Hello.Nonce
}

// Wanted returns how many bytes the caller may read from the socket now. The number is never 0
// while a frame is awaited. An acceptor that awaits the frame READY reads no byte beyond that
// frame, because the bytes after it belong to the transport.
func (m *Machine) Wanted() int {
	if !m.isAcceptor() || m.awaiting != layout.ReadyTag {
		return layout.FrameBytesMax
	}
	whole := layout.ReadyBytes
	if len(m.received) >= layout.FramePreambleBytes {
		if p, err := layout.ParsePreamble(m.received); err == nil {
			whole = p.Length
		}
	}
	return max(whole-len(m.received), 1)
}

// Flight returns the frames that the caller must now send in one message, and removes them from the
// machine. After an error the frame may be a REJECT.
func (m *Machine) Flight() Flight {
	f := m.flight
	m.flight = Flight{}
	return f
}

// Receive handles the bytes and descriptors of one read. Once both sides are ready, it returns the
// outcome of the handshake. The caller then sends the last flight before it uses the transport. The
// error is an [*Error].
func (m *Machine) Receive(a Arrival) (*Outcome, error) {
	outcome, err := m.receive(a)
	if err != nil {
		m.arrived.drop()
		return nil, m.refuse(err)
	}
	return outcome, nil
}

// HangUp ends the handshake, because the peer has hung up.
func (m *Machine) HangUp() error {
	m.arrived.drop()
	return &Error{Number: layout.ErrorHandshakeHangUp}
}

// TimeOut ends the handshake, because its deadline has passed (SPEC 2.7).
func (m *Machine) TimeOut() error {
	m.arrived.drop()
	return m.refuse(&Error{Number: layout.ErrorHandshakeTimedOut})
}

func (m *Machine) receive(a Arrival) (*Outcome, error) {
	if err := m.arrived.add(a); err != nil {
		return nil, err
	}
	if m.IsUntouched() {
		m.sender = a.Sender
	} else if m.awaiting == layout.HelloTag && m.sender != a.Sender {
		return nil, broken(layout.ViolationFrame)
	}
	m.received = append(m.received, a.Bytes...)
	if m.isFirst && !beginsLikeOurs(m.received) {
		return nil, &Error{Number: layout.ErrorNotPartywall}
	}
	for {
		frame, preamble, err := m.nextFrame()
		if err != nil || frame == nil {
			return nil, err
		}
		outcome, err := m.act(frame, preamble)
		if err != nil || outcome != nil {
			return outcome, err
		}
	}
}

// nextFrame removes the next whole frame from the received bytes. The result is nil if no whole
// frame has come yet.
func (m *Machine) nextFrame() ([]byte, layout.Preamble, error) {
	if len(m.received) < layout.FramePreambleBytes {
		return nil, layout.Preamble{}, nil
	}
	p, err := layout.ParsePreamble(m.received)
	if err != nil {
		return nil, p, broken(err)
	}
	if len(m.received) < p.Length {
		return nil, p, nil
	}
	frame := m.received[:p.Length:p.Length]
	m.received = m.received[p.Length:]
	m.isFirst = false
	return frame, p, nil
}

// act handles a whole frame of the peer. A frame other than the awaited one is a violation, except
// that a REJECT may come at any time.
func (m *Machine) act(frame []byte, p layout.Preamble) (*Outcome, error) {
	if p.Tag == layout.RejectTag {
		return nil, refused(frame)
	}
	if p.Tag != m.awaiting {
		return nil, broken(layout.ViolationFrame)
	}
	switch p.Tag {
	case layout.HelloTag:
		m.awaiting = layout.OfferTag
		return nil, m.onHello(frame)
	case layout.OfferTag:
		m.awaiting = layout.ReadyTag
		return nil, m.onOffer(frame)
	}
	m.awaiting = ""
	return m.onReady(frame)
}

func (m *Machine) onHello(frame []byte) error {
	hello, err := layout.ParseHello(frame)
	if err != nil {
		return broken(err)
	}
	own := &m.terms.Hello
	if (layout.Preamble{VersionMin: hello.VersionMin, VersionMax: hello.VersionMax}).Common() == 0 {
		return &Error{
			Number: layout.ErrorVersion,
			Text:   versionText(hello.VersionMin, hello.VersionMax),
		}
	}
	if hello.Nonce == own.Nonce {
		return &Error{Number: layout.ErrorNotPartywall, Text: "HELLO of this side came back"}
	}
	if hello.Service != own.Service {
		if m.isAcceptor() {
			return &Error{Number: layout.ErrorService, Asked: hello.Service, Offered: own.Service}
		}
		return broken(layout.ViolationFrame)
	}
	asksToMove := m.isAcceptor() && hello.Features&layout.FeatureMove != 0
	if both := uint64(layout.FeatureSHM | layout.FeatureSocket); asksToMove && hello.Features&both != both {
		return broken(layout.ViolationFrame)
	}
	claimed, err := m.arrived.claim(hello.Descriptors)
	if err != nil {
		return err
	}
	pidfd := claimed.take(layout.DescriptorPidfd)
	claimed.drop(m.env.Close)
	m.outcome.Peer = hello
	if m.outcome.IsTrusted, err = m.env.Judge(m.sender, pidfd); err != nil {
		return err
	}
	m.outcome.SessionID = m.Session()
	if reason := m.obstacle(); reason != 0 {
		if err := m.checkSocket(reason); err != nil {
			return err
		}
	}
	if asksToMove {
		return m.decline()
	}
	return nil
}

// decline answers the HELLO of a connector that asked to begin on the socket (SPEC 2.9). The answer
// is a HELLO without the feature MOVE, after which the connector sends the frame OFFER.
func (m *Machine) decline() error {
	if err := m.checkNothingMore(); err != nil {
		return err
	}
	m.flight.Bytes = m.hello().Append(m.flight.Bytes)
	m.isGreeted = true
	return nil
}

// obstacle returns the reason why the HELLOs of the two sides do not allow sharing memory; 0 if
// they allow it.
func (m *Machine) obstacle() layout.FallbackReason {
	for _, hello := range []*layout.Hello{&m.terms.Hello, &m.outcome.Peer} {
		if hello.Features&layout.FeatureSHM == 0 {
			return orPolicy(hello.FallbackReason)
		}
	}
	if m.terms.RegionSize > m.outcome.Peer.MapMax {
		return layout.ReasonLimits
	}
	return 0
}

// checkSocket returns the error ErrorNoTransport, with the reason why memory cannot be shared,
// unless both sides accept the socket as transport (SPEC 2.4).
func (m *Machine) checkSocket(reason layout.FallbackReason) error {
	if m.terms.Hello.Features&m.outcome.Peer.Features&layout.FeatureSocket != 0 {
		return nil
	}
	return &Error{Number: layout.ErrorNoTransport, Reason: reason}
}

func (m *Machine) onOffer(frame []byte) error {
	offer, err := layout.ParseOffer(frame)
	if err != nil {
		return broken(err)
	}
	claimed, err := m.arrived.claim(offer.Descriptors)
	if err != nil {
		return err
	}
	defer claimed.drop(m.env.Close)
	if m.isAcceptor() {
		if err := m.checkNothingMore(); err != nil {
			return err
		}
	}
	m.isShared = offer.Transport == layout.TransportSHM
	if m.peerReason, err = m.judgeOffer(offer, claimed); err != nil || !m.isAcceptor() {
		return err
	}
	return m.answer()
}

// judgeOffer maps the region that the peer offers in its OFFER. If this side does not map the
// region, judgeOffer returns the reason.
func (m *Machine) judgeOffer(offer layout.Offer, c *claimedDescriptors) (
	layout.FallbackReason, error,
) {
	if reason := m.obstacle(); reason != 0 {
		return reason, nil
	}
	switch {
	case m.ownReason != 0:
		return m.ownReason, nil
	case !m.isShared:
		return orPolicy(offer.Reason), nil
	case m.isAcceptor() && offer.RegionSize > m.terms.Hello.MapMax:
		// The region is larger than the peer's memory that this side maps at most. This is no
		// violation: the connector made the region before it knew this limit.
		return layout.ReasonLimits, nil
	case c.isTruncated:
		return layout.ReasonDescriptors, nil
	}
	role := uint32(layout.RoleAcceptor)
	if m.isAcceptor() {
		role = layout.RoleConnector
	}
	reason, err := m.env.MapRegion(c.take(layout.DescriptorRegion), layout.Expectation{
		Size:          offer.RegionSize,
		SessionID:     m.outcome.SessionID,
		Role:          role,
		PeerBlocksMax: m.outcome.Peer.PeerBlocksMax,
	})
	if err != nil || reason != 0 {
		return reason, err
	}
	return 0, m.takeDoorbells(c)
}

// takeDoorbells passes the peer's eventfds to the environment, if the peer is trusted and has sent
// both. A connector takes them only if it has offered its own.
func (m *Machine) takeDoorbells(c *claimedDescriptors) error {
	if !c.has(layout.DescriptorRecords) || !c.has(layout.DescriptorRoom) ||
		!m.outcome.IsTrusted || !m.isAcceptor() && !m.hasDoorbells {
		return nil
	}
	m.peersDoorbells = true
	return m.env.TakeDoorbells(c.take(layout.DescriptorRecords), c.take(layout.DescriptorRoom))
}

// answer makes the region of an acceptor, and puts its frames HELLO, OFFER and READY into the
// flight.
func (m *Machine) answer() error {
	offered := Offered{}
	if m.ownReason = m.peerReason; m.ownReason == 0 {
		offered, m.ownReason = m.env.MakeRegion(m.outcome.SessionID)
		m.hasDoorbells = m.ownReason == 0 && m.peersDoorbells
	}
	ready := layout.Ready{Transport: layout.TransportSHM}
	if m.ownReason != 0 {
		if err := m.checkSocket(m.ownReason); err != nil {
			return err
		}
		ready = layout.Ready{Transport: layout.TransportSocket, Reason: m.ownReason}
	}
	m.sendHelloAndOffer(offered)
	m.flight.Bytes = ready.Append(m.flight.Bytes)
	m.isReady = true
	return nil
}

func (m *Machine) onReady(frame []byte) (*Outcome, error) {
	ready, err := layout.ParseReady(frame)
	if err != nil {
		return nil, broken(err)
	}
	claimed, err := m.arrived.claim(ready.Descriptors)
	if err != nil {
		return nil, err
	}
	claimed.drop(m.env.Close)
	if err := m.checkNothingMore(); err != nil {
		return nil, err
	}
	isShared := ready.Transport == layout.TransportSHM
	if isShared && (m.ownReason != 0 || !m.isShared) {
		return nil, broken(layout.ViolationFrame)
	}
	reason := m.ownReason
	if reason == 0 {
		reason = m.peerReason
	}
	if reason == 0 && !isShared {
		reason = orPolicy(ready.Reason)
	}
	canNotify := m.hasDoorbells && m.peersDoorbells
	if m.isAcceptor() {
		hasDoorbells := ready.Flags&layout.ReadyDoorbells != 0
		if hasDoorbells && !canNotify {
			return nil, broken(layout.ViolationFrame)
		}
		return m.conclude(reason, hasDoorbells)
	}
	return m.conclude(reason, canNotify)
}

// conclude ends the handshake in success: memory is shared if reason is 0, otherwise the socket is
// used. A connector sends the frame READY, which tells the acceptor the transport.
func (m *Machine) conclude(reason layout.FallbackReason, hasDoorbells bool) (*Outcome, error) {
	if reason != 0 {
		hasDoorbells = false
		if err := m.checkSocket(reason); err != nil {
			return nil, err
		}
	}
	if !m.isAcceptor() {
		ready := layout.Ready{Transport: layout.TransportSHM}
		if hasDoorbells {
			ready.Flags = layout.ReadyDoorbells
		}
		if reason != 0 {
			ready = layout.Ready{Transport: layout.TransportSocket, Reason: reason}
		}
		m.flight = Flight{Bytes: ready.Append(nil)}
		m.isReady = true
	}
	m.outcome.IsShared, m.outcome.Reason = reason == 0, reason
	m.outcome.HasDoorbells = hasDoorbells
	return &m.outcome, nil
}

// hello returns the HELLO of this side, and puts the pidfd that HELLO lists into the flight.
func (m *Machine) hello() layout.Hello {
	hello := m.terms.Hello
	if m.terms.Pidfd >= 0 {
		hello.Descriptors = layout.Descriptors{layout.DescriptorPidfd}
		m.flight.Descriptors = append(m.flight.Descriptors, m.terms.Pidfd)
	}
	return hello
}

// sendHelloAndOffer puts HELLO and OFFER of this side into the flight, with the descriptors that
// the two frames list. HELLO is left out if it was sent before.
func (m *Machine) sendHelloAndOffer(offered Offered) {
	if !m.isGreeted {
		m.flight.Bytes = m.hello().Append(m.flight.Bytes)
	}
	offer := layout.Offer{Transport: layout.TransportSocket, Reason: m.ownReason}
	if m.ownReason == 0 {
		offer = layout.Offer{
			Transport:   layout.TransportSHM,
			RegionSize:  m.terms.RegionSize,
			Descriptors: layout.Descriptors{layout.DescriptorRegion},
		}
		m.flight.Descriptors = append(m.flight.Descriptors, offered.Region)
		if m.hasDoorbells {
			offer.Descriptors = append(offer.Descriptors,
				layout.DescriptorRecords, layout.DescriptorRoom)
			m.flight.Descriptors = append(m.flight.Descriptors, offered.Records, offered.Room)
		}
	}
	m.flight.Bytes = offer.Append(m.flight.Bytes)
}

// checkNothingMore returns a violation if the peer has sent bytes or descriptors at a time when it
// must wait for an answer of this side.
func (m *Machine) checkNothingMore() error {
	if len(m.received) > 0 || !m.arrived.isEmpty() {
		return broken(layout.ViolationFrame)
	}
	return nil
}

// refuse ends the handshake with err, and returns err as an [*Error]. It puts a REJECT into the
// flight, if the error has a code for it and this side has not sent READY.
func (m *Machine) refuse(err error) error {
	failure, ok := err.(*Error)
	if !ok {
		failure = &Error{Number: layout.ErrorHandshakeSystem, Err: err}
	}
	m.flight = Flight{}
	if code := failure.reply(); code != 0 && !m.isReady {
		reject := layout.Reject{Code: code, Text: failure.text()}
		m.flight.Bytes = reject.Append(nil)
	}
	m.isReady, m.awaiting = true, ""
	return failure
}

func (m *Machine) isAcceptor() bool { return m.terms.Role == layout.RoleAcceptor }

func (m *Machine) sharesMemory() bool { return m.terms.Hello.Features&layout.FeatureSHM != 0 }

// orPolicy returns the reason that the peer gave for not sharing memory. If the peer gave none, the
// result is ReasonPolicy, which says that its configuration forbids it.
func orPolicy(reason layout.FallbackReason) layout.FallbackReason {
	if reason == 0 {
		return layout.ReasonPolicy
	}
	return reason
}

// beginsLikeOurs reports whether b, the first bytes of the peer, may be the beginning of a frame
// HELLO or REJECT of this protocol.
func beginsLikeOurs(b []byte) bool {
	head := string(b[:min(len(b), len(layout.HelloTag))])
	return strings.HasPrefix(layout.HelloTag, head) || strings.HasPrefix(layout.RejectTag, head)
}

// refused returns the error of a handshake in which the peer sent the given REJECT, with its text.
// It removes control characters from the text.
func refused(frame []byte) error {
	reject, err := layout.ParseReject(frame)
	if err != nil {
		return broken(err)
	}
	text := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(reject.Text, ""))
	return &Error{Number: layout.ErrorRefusedByThePeer, Code: reject.Code, Text: text}
}

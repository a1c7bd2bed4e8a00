// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

import "math/bits"

// A Session checks the records of one direction of a session, in the order in which they come (SPEC
// 11). The caller has checked the header of each record before, by [ParseRing] or [ParseSocket].
// The side that receives the records also tells the Session, by the methods other than Receive,
// what it has sent itself.
//
// After an error the connection has ended, and the Session is not used any more.
type Session struct {
	config   SessionConfig
	segments *Segments // nil on a socket
	streams  map[uint32]*Stream
	isClosed bool
}

// A SessionConfig has the values that the owner of a [Session] stated in its HELLO.
type SessionConfig struct {
	Limits       Limits
	Role         uint32 // RoleConnector or RoleAcceptor
	StreamWindow uint64 // credit of a new stream, in bytes
	StreamsMax   uint32 // streams that the peer may have open at a time
}

// NewSession returns a Session that has received no record. On a socket, which has no segments, the
// argument segments is nil.
func NewSession(config SessionConfig, segments *Segments) *Session {
	return &Session{config: config, segments: segments, streams: make(map[uint32]*Stream)}
}

// IsClosed reports whether the record CLOSE_WRITE of stream 0, the session itself, was received.
func (s *Session) IsClosed() bool { return s.isClosed }

// Stream returns the state of the stream with this number, or nil if no such stream is open.
func (s *Session) Stream(number uint32) *Stream { return s.streams[number] }

// Open notes that the owner of the Session has sent a record OPEN, and returns the new stream. It
// panics if the number is one of the peer's, or in use.
func (s *Session) Open(number uint32) *Stream {
	if s.isPeers(number) || s.streams[number] != nil {
		panic("layout: opening a stream whose number is not free")
	}
	stream := &Stream{isOwn: true}
	s.streams[number] = stream
	return stream
}

// Receive checks the next record. On a socket the payload of a BLOB is its body without the bytes
// of the message.
func (s *Session) Receive(h Header, payload []byte) error {
	if s.isClosed {
		return ViolationUnexpected
	}
	switch {
	case h.Kind == KindPad || h.Kind == KindSegment || h.Kind == KindSegmentRetire:
		if s.segments == nil {
			return ViolationUnexpected
		}
		if h.Kind == KindPad {
			return nil
		}
		return s.segments.receive(h.Kind, payload)
	case h.Stream == 0:
		return s.receiveOwn(h.Kind, payload)
	case h.Kind == KindGoAway || h.Kind == KindPing:
		return ViolationUnexpected
	}
	if err := s.checkPayload(h.Kind, payload); err != nil {
		return err
	}
	if h.Kind == KindOpen {
		return s.receiveOpen(h.Stream)
	}
	stream := s.streams[h.Stream]
	if stream == nil {
		return ViolationStream
	}
	isFree, err := stream.Receive(h.Kind, payload, s.config.StreamWindow)
	if isFree {
		delete(s.streams, h.Stream)
	}
	return err
}

// receiveOwn checks a record whose stream number is 0, and which so concerns the session itself.
func (s *Session) receiveOwn(kind Kind, payload []byte) error {
	switch {
	case isMessage(kind):
		return ViolationStream
	case kind == KindCloseWrite:
		s.isClosed = true
		return checkEmpty(payload)
	case kind == KindGoAway:
		_, err := ParseGoAway(payload)
		return err
	case kind == KindPing:
		_, err := ParsePing(payload)
		return err
	}
	return ViolationUnexpected
}

// receiveOpen checks the number of a new stream (SPEC 11.2).
func (s *Session) receiveOpen(number uint32) error {
	if !s.isPeers(number) || (number-1)/2 >= s.config.StreamsMax {
		return ViolationStream
	}
	if stream := s.streams[number]; stream != nil && !stream.hasSentEnd {
		return ViolationStream
	}
	s.streams[number] = &Stream{}
	return nil
}

// isPeers reports whether streams with this number are opened by the peer (SPEC 11.1).
func (s *Session) isPeers(number uint32) bool {
	opener := uint32(RoleAcceptor)
	if number%2 == 1 {
		opener = RoleConnector
	}
	return opener != s.config.Role
}

// checkPayload checks the payload of a record of a stream by itself, without regard to the state of
// the stream.
func (s *Session) checkPayload(kind Kind, payload []byte) error {
	var err error
	switch kind {
	case KindData:
		if uint64(len(payload)) > s.config.Limits.MessageMax {
			err = ViolationMessageLength
		}
	case KindBlob:
		err = CheckBlob(payload, s.config.Limits, s.segments)
	case KindOpen:
		_, err = ParseOpen(payload)
	case KindReset:
		_, err = ParseReset(payload)
	case KindCredit:
		_, err = ParseCredit(payload)
	case KindCloseWrite, KindEnd:
		err = checkEmpty(payload)
	default:
		err = checkFragment(kind, payload, s.config.Limits.MessageMax)
	}
	return err
}

func isMessage(kind Kind) bool {
	return kind == KindData || kind == KindBlob || isFragment(kind)
}

// A Stream is the state of one stream of a session at one side (SPEC 11.3 to 11.5).
type Stream struct {
	Assembly Assembly
	isOwn    bool // this side opened it

	hasFinished, hasStopped         bool // this side ended its sending, its receiving
	peerHasFinished, peerHasStopped bool
	hasSentEnd                      bool

	charged, credited  uint64 // cost of the messages received; what CREDIT of this side has said
	sent, peerCredited uint64 // cost of the messages sent; what CREDIT of the peer has said
}

// MayBegin reports whether credit lets this side begin a message of length bytes, where window is
// the stream window of the peer (SPEC 11.4).
func (s *Stream) MayBegin(length, window uint64) bool {
	return fits(length, s.sent-s.peerCredited, window)
}

// Send notes that this side has begun to send a message of length bytes on the stream.
func (s *Stream) Send(length uint64) { s.sent += Footprint(length) }

// Finish notes that this side sends no more on the stream: it has sent a record CLOSE_WRITE or
// RESET {sending}.
func (s *Stream) Finish() { s.hasFinished = true }

// Stop notes that this side receives no more on the stream: it has sent a record RESET {receiving}.
func (s *Stream) Stop() { s.hasStopped = true }

// Credit notes that this side has sent a record CREDIT. It panics if credited is below the value of
// the last CREDIT, or above the cost of the received messages.
func (s *Stream) Credit(credited uint64) {
	if credited < s.credited || credited > s.charged {
		panic("layout: credit that the stream does not have")
	}
	s.credited = credited
}

// IsOver reports whether this side sees both directions of the stream as ended (SPEC 11.5). The
// answerer, the side that did not open it, then sends the record END once its application has taken
// the messages.
func (s *Stream) IsOver() bool {
	return (s.hasFinished || s.peerHasStopped) && (s.hasStopped || s.peerHasFinished)
}

// End notes that this side has sent the record END. It panics if this side opened the stream, has
// sent END before, or a direction is still open.
func (s *Stream) End() {
	if s.isOwn || s.hasSentEnd || !s.IsOver() {
		panic("layout: END of a stream that is not the answerer's to end")
	}
	s.hasSentEnd = true
}

// Charged returns the cost of all messages that this side has received on the stream, and the part
// of this cost for which this side has returned credit.
func (s *Stream) Charged() (charged, credited uint64) { return s.charged, s.credited }

// PeerMayBegin reports whether the peer may begin a message of length bytes, once it has received
// the credit that this side has returned (SPEC 11.4). The window is the stream window of this side.
func (s *Stream) PeerMayBegin(length, window uint64) bool {
	return fits(length, s.charged-s.credited, window)
}

// Receive checks a record of the stream other than OPEN. The window is the stream window of this
// side, and [Session.Receive] has checked the payload. The result says whether the stream has
// ended, so that its number is free again.
func (s *Stream) Receive(kind Kind, payload []byte, window uint64) (isFree bool, err error) {
	if s.hasSentEnd {
		return false, nil // the opener sent it before it read END (SPEC 11.5)
	}
	switch {
	case isMessage(kind):
		return false, s.receiveMessage(kind, payload, window)
	case kind == KindCloseWrite:
		return false, s.receiveFinish()
	case kind == KindReset:
		r, _ := ParseReset(payload)
		if r.Directions&ResetReceiving != 0 {
			s.peerHasStopped = true
		}
		if r.Directions&ResetSending != 0 {
			return false, s.receiveFinish()
		}
		return false, nil
	case kind == KindCredit:
		credited, _ := ParseCredit(payload)
		return false, s.receiveCredit(credited)
	}
	if !s.isOwn || !s.IsOver() {
		return false, ViolationStream
	}
	return true, nil
}

func (s *Stream) receiveFinish() error {
	if s.peerHasFinished {
		return ViolationStream
	}
	s.peerHasFinished = true
	s.Assembly.Drop()
	return nil
}

// receiveCredit checks the credit of the peer, which is the cost of the messages that its
// application has taken (SPEC 11.4).
func (s *Stream) receiveCredit(credited uint64) error {
	if s.peerHasStopped {
		return ViolationStream
	}
	if credited < s.peerCredited || credited > s.sent {
		return ViolationCredit
	}
	s.peerCredited = credited
	return nil
}

// receiveMessage checks a record that carries a whole message or a fragment of one.
func (s *Stream) receiveMessage(kind Kind, payload []byte, window uint64) error {
	if s.peerHasFinished {
		return ViolationStream
	}
	if isFragment(kind) {
		if err := s.Assembly.Add(kind, payload); err != nil || kind != KindFragmentFirst {
			return err
		}
		_, total := s.Assembly.Progress()
		return s.charge(total, window)
	}
	if s.Assembly.IsWithin() {
		return ViolationStream
	}
	length := uint64(len(payload))
	if kind == KindBlob {
		b, _ := ParseBlob(payload)
		if b.HasCredit {
			if err := s.receiveCredit(b.Credited); err != nil {
				return err
			}
		}
		length = b.Length
	}
	return s.charge(length, window)
}

// charge adds the cost of a new message to the stream, or returns a violation if the peer had no
// credit for it (SPEC 11.4).
func (s *Stream) charge(length, window uint64) error {
	if !s.PeerMayBegin(length, window) {
		return ViolationCredit
	}
	s.charged += Footprint(length)
	return nil
}

// fits reports whether a message of length bytes may begin, where outstanding is the cost in bytes
// of earlier messages for which the receiver has not yet returned credit (SPEC 11.4).
func fits(length, outstanding, window uint64) bool {
	if length > costLengthMax {
		return false
	}
	sum, carry := bits.Add64(outstanding, Footprint(length), 0)
	return outstanding <= window/2 || carry == 0 && sum <= window
}

// costLengthMax is the longest message whose cost is computed; the cost of longer ones could
// overflow. No ring and no slab holds such a message.
const costLengthMax = 1 << 62

// SPDX-License-Identifier: MIT OR Apache-2.0

package session

import (
	"iter"
	"maps"
	"unicode/utf8"

	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/layout"
)

// A Session is one side of a session: its streams, and its pending records, those that are still to
// be written.
//
//	Open    ──▶ Stream ◀── Accept        until the session is over: Close, End, or the peer's
//	Receive ──▶ Event                    CLOSE_WRITE of stream 0
//	Flush   ──▶ pending records
type Session struct {
	config  Config
	check   *layout.Session
	streams map[uint32]*Stream // those that have not ended, by number
	numbers numbers
	waiting []*Stream // streams of the peer that nobody has accepted, oldest first
	outbox  outbox
	err     error // why the session is over

	hasGoneAway    bool
	peerGoAway     *Error // GO_AWAY of the peer
	peerFarewell   *Error // GO_AWAY with CLOSING of the peer
	asked          uint64 // token of the newest PING of this side
	answered       uint64 // the highest token that the peer has answered
	isOutboxClosed bool   // nothing more is written
}

// A Config has the values for a session that both sides have stated in their HELLOs (SPEC 2.2).
type Config struct {
	Role           uint32        // RoleConnector or RoleAcceptor, of this side
	Limits         layout.Limits // of this side
	Window         uint64        // stream window of this side, in bytes
	StreamsMax     uint32        // streams that the peer may have open at a time
	PeerMessageMax uint64        // the longest message that this side may send, in bytes
	PeerWindow     uint64
	PeerStreamsMax uint32
}

// An Event says what a received record has changed in a session, so that the caller wakes the
// goroutines that wait for the change.
type Event struct {
	Stream *Stream // the stream that a record of a stream concerns
	Change Change
}

// A Change is a set of bits, each for something in a session or stream that a received record has
// changed.
type Change uint8

// The bits of a [Change], each for something that a received record has changed.
const (
	Readable   Change = 1 << iota // the stream has a message, or its receiving is over
	Writable                      // the stream has credit, or its sending is over
	Acceptable                    // the peer has opened a stream
	Answered                      // the peer has answered a PING
	Freed                         // a stream has ended: its number is free
	GoingAway                     // the peer accepts no more streams
	Over                          // the session is over
)

// New returns a session that has received no record. The argument segments has the peer's segments,
// which the connection keeps up to date; on a socket it is nil.
func New(config Config, segments *layout.Segments) *Session {
	return &Session{
		config: config,
		check: layout.NewSession(layout.SessionConfig{
			Limits:       config.Limits,
			Role:         config.Role,
			StreamWindow: config.Window,
			StreamsMax:   config.StreamsMax,
		}, segments),
		streams: make(map[uint32]*Stream),
		numbers: numbers{role: config.Role, max: min(config.PeerStreamsMax, layout.StreamsMax)},
	}
}

// Err returns the reason why the session is over, or nil while it is not.
func (s *Session) Err() error { return s.err }

// StreamCount returns the number of streams of the session that have not ended.
func (s *Session) StreamCount() int { return len(s.streams) }

// Streams returns the streams of the session that have not ended, in no particular order.
func (s *Session) Streams() iter.Seq[*Stream] { return maps.Values(s.streams) }

// PeerGoAway returns the error that [Session.Open] returns because the peer has sent the record
// GO_AWAY. The result is nil if the peer has not sent it (SPEC 11.6).
func (s *Session) PeerGoAway() error {
	if s.peerGoAway == nil {
		return nil
	}
	return s.peerGoAway
}

// Open opens a stream, and makes its record OPEN pending. The error is an [Error], or [ErrNoNumber]
// if another stream must end first. Open copies the metadata.
func (s *Session) Open(content uint16, metadata []byte) (*Stream, error) {
	switch {
	case s.err != nil:
		return nil, s.err
	case s.isOutboxClosed:
		return nil, &Error{Number: layout.ErrorDisconnected}
	case len(metadata) > layout.MetadataBytesMax:
		return nil, &Error{Number: layout.ErrorMetadataTooLong}
	case s.peerGoAway != nil:
		return nil, s.peerGoAway
	case s.numbers.max == 0:
		return nil, &Error{Number: layout.ErrorNoStreams}
	}
	number, isFree := s.numbers.take()
	if !isFree {
		return nil, ErrNoNumber
	}
	stream := newStream(s, number, true, layout.Open{Content: content, Metadata: metadata})
	s.streams[number] = stream
	s.outbox.list(stream)
	return stream, nil
}

// Accept returns the oldest stream that the peer opened and that Accept has not returned yet. The
// error is [ErrEmpty] if there is none, or the reason why the session is over.
func (s *Session) Accept() (*Stream, error) {
	switch {
	case s.err != nil && (len(s.waiting) == 0 || s.isClosedHere()):
		return nil, s.err
	case len(s.waiting) == 0:
		return nil, ErrEmpty
	}
	stream := s.waiting[0]
	s.waiting[0] = nil
	s.waiting = s.waiting[1:]
	stream.isSeen = true
	s.outbox.list(stream)
	return stream, nil
}

func (s *Session) isClosedHere() bool {
	e, isError := s.err.(*Error)
	return isError && e.Number == layout.ErrorSessionClosedHere
}

// GoAway asks the peer to open no more streams. The session refuses streams that the peer opens
// after this call. A second call does nothing.
func (s *Session) GoAway(code uint32) {
	if !s.hasGoneAway && s.err == nil {
		s.hasGoneAway = true
		s.outbox.goAway = pendingCode{true, code}
	}
}

// Ping makes a record PING with a new token pending, and returns the token. Once the peer has
// answered, [Session.Answered] returns this token or a higher one.
func (s *Session) Ping() uint64 {
	s.asked++
	s.outbox.ask = s.asked
	return s.asked
}

// Answered returns the highest token of the PINGs of this side that the peer has answered.
func (s *Session) Answered() uint64 { return s.answered }

// Close ends the session at this side: its streams end, and it drops the records that the peer
// sends later. The caller may still write the pending records, and then writes the record
// CLOSE_WRITE of stream 0. The reason is for operators, and is cut to 255 bytes.
func (s *Session) Close(code uint32, reason string) {
	if s.err != nil {
		return
	}
	reason = cut(reason, layout.GoAwayReasonBytesMax)
	farewell := &Error{Number: layout.ErrorSessionClosedHere, Code: code, Reason: reason}
	s.err = farewell
	if code != 0 || reason != "" {
		s.outbox.farewell = farewell
	}
	for _, stream := range s.streams {
		stream.queue.drop()
		stream.parts = nil
	}
}

// End ends the session because its connection has ended with err. No more records are written.
func (s *Session) End(err error) {
	s.isOutboxClosed = true
	if s.err != nil {
		return
	}
	s.err = err
	for _, stream := range s.streams {
		stream.parts = nil
	}
}

// CutOff notes that this side can write no more records, because the peer has hung up. From now on
// sending fails. Until [Session.End], this side still receives what the peer has written before.
func (s *Session) CutOff() { s.isOutboxClosed = true }

// Receive handles the next record of the peer, whose header was checked. The payload is memory that
// the peer cannot write. If the record carries a whole message, the message is m, which belongs to
// the session from now on; the payload of a BLOB is then only its body.
//
// The error is a violation of the peer, after which the session is over. A session that is over
// drops all records.
func (s *Session) Receive(h layout.Header, payload []byte, m Message) (Event, error) {
	if s.err != nil {
		m.Release()
		return Event{}, nil
	}
	if err := s.check.Receive(h, payload); err != nil {
		m.Release()
		s.End(err)
		return Event{Change: Over}, err
	}
	switch {
	case h.Stream == 0:
		return s.receiveOwn(h.Kind, payload), nil
	case h.Kind == layout.KindOpen:
		return s.receiveOpen(h.Stream, payload), nil
	}
	stream := s.streams[h.Stream]
	if stream == nil {
		m.Release() // the opener sent it before it read END (SPEC 11.5)
		return Event{}, nil
	}
	if h.Kind == layout.KindEnd {
		stream.life.receiveEnd()
		delete(s.streams, h.Stream)
		if !fault.Is("number_kept") {
			s.numbers.free(h.Stream)
		}
		return Event{stream, Freed | Readable | Writable}, nil
	}
	change := stream.receive(h.Kind, payload, m)
	s.outbox.list(stream)
	return Event{stream, change}, nil
}

// HasPending reports whether [Session.Flush] has records to write.
func (s *Session) HasPending() bool { return !s.isOutboxClosed && !s.outbox.isEmpty() }

// Flush writes the pending records to w, and returns whether all of them are written. If some are
// not, w has no room now. The error is that of w.
//
// Flush may write END of a stream, which ends the stream. So [Session.StreamCount] may be lower
// after the call.
func (s *Session) Flush(w Writer) (bool, error) {
	if !s.HasPending() {
		return true, nil
	}
	return s.outbox.flush(w)
}

// receiveOwn handles a record whose stream number is 0, and which so concerns the session itself.
func (s *Session) receiveOwn(kind layout.Kind, payload []byte) Event {
	switch kind {
	case layout.KindPing:
		ping, _ := layout.ParsePing(payload)
		if !ping.Answer {
			s.outbox.answer, s.outbox.mustAnswer = ping.Token, true
			return Event{}
		}
		if ping.Token <= s.asked || fault.Is("answer_believed") {
			s.answered = max(s.answered, ping.Token)
		}
		return Event{Change: Answered}
	case layout.KindGoAway:
		goAway, _ := layout.ParseGoAway(payload)
		s.receiveGoAway(goAway)
		return Event{Change: GoingAway}
	case layout.KindCloseWrite:
		var err error = &Error{Number: layout.ErrorFinished}
		if s.peerFarewell != nil {
			err = s.peerFarewell
		}
		s.End(err)
		return Event{Change: Over}
	}
	return Event{}
}

// receiveGoAway stores the codes of the peer's first GO_AWAY and of its first GO_AWAY {CLOSING}
// (SPEC 11.6).
func (s *Session) receiveGoAway(g layout.GoAway) {
	if s.peerGoAway == nil {
		s.peerGoAway = &Error{Number: layout.ErrorGoingAway, Code: g.Code}
	}
	if g.Flags&layout.GoAwayClosing != 0 && s.peerFarewell == nil {
		s.peerFarewell = &Error{
			Number: layout.ErrorSessionClosedByThePeer,
			Code:   g.Code,
			Reason: string(g.Reason),
		}
	}
}

// receiveOpen makes the stream that the peer has opened. After this side has sent GO_AWAY, it
// refuses the stream with a record RESET.
func (s *Session) receiveOpen(number uint32, payload []byte) Event {
	open, _ := layout.ParseOpen(payload)
	stream := newStream(s, number, false, open)
	stream.wire = s.check.Stream(number)
	s.streams[number] = stream
	if s.hasGoneAway && !fault.Is("open_after_go_away") {
		stream.isSeen = true
		stream.life.reset(layout.ResetRefused)
		stream.life.stop(layout.ResetRefused)
		s.outbox.list(stream)
		return Event{}
	}
	s.waiting = append(s.waiting, stream)
	return Event{Change: Acceptable}
}

// streamErr returns the error of a stream that was still open when the session ended (SPEC 11.6).
func (s *Session) streamErr() error {
	if e, isError := s.err.(*Error); isError && e.Number == layout.ErrorFinished {
		return &Error{Number: layout.ErrorDisconnected}
	}
	return s.err
}

// cut returns the beginning of text, at most max bytes of it, and never a part of a character.
func cut(text string, max int) string {
	if len(text) <= max {
		return text
	}
	for max > 0 && !fault.Is("character_cut") && !utf8.RuneStart(text[max]) {
		max--
	}
	return text[:max]
}

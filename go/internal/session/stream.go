// SPDX-License-Identifier: MIT OR Apache-2.0

package session

import (
	"fmt"
	"io"

	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/layout"
)

// A Stream is one side of a stream (SPEC 11.2 to 11.5).
//
//	records of the peer ──▶ queue ──▶ Recv          credit goes back when messages are taken
//	MayBegin, Begun     ──▶ records of messages     the caller writes these
//	CloseWrite, Reset, Stop, Abort ──▶ pending records
type Stream struct {
	User any // for the caller

	session  *Session
	number   uint32
	content  uint16
	metadata []byte

	life lifecycle
	wire *layout.Stream // what has crossed; nil until OPEN is written

	queue messageQueue
	parts []byte // of the message under way, while the application receives
	taken uint64 // cost of the messages that the application has taken, or that were aborted

	isSeen          bool // the application has the stream, or will not have it
	isListed        bool // in the outbox
	isCreditPending bool
	waitsForCredit  bool // the application waits to send
}

// newStream returns a stream of the session s, with the content and the metadata of its record
// OPEN.
func newStream(s *Session, number uint32, isOpener bool, open layout.Open) *Stream {
	stream := &Stream{
		session:  s,
		number:   number,
		content:  open.Content,
		metadata: append([]byte(nil), open.Metadata...),
		life:     lifecycle{isOpener: isOpener},
		isSeen:   isOpener,
	}
	if fault.Is("metadata_shared") {
		stream.metadata = open.Metadata
	}
	return stream
}

// Number returns the number of the stream in its session. An earlier stream that has ended may have
// had the same number.
func (s *Stream) Number() uint32 { return s.number }

// Content returns the number with which the stream's opener says what the stream carries (SPEC
// 11.2).
func (s *Stream) Content() uint16 { return s.content }

// Metadata returns the bytes that the stream's opener sent in the record OPEN.
func (s *Stream) Metadata() []byte { return s.metadata }

// Recv takes the oldest message of the stream. The error is [ErrEmpty] if none has come, [io.EOF]
// after the peer's record CLOSE_WRITE, an [Error], or the reason why the session is over.
//
// The call may make a record CREDIT or END pending.
func (s *Stream) Recv() (Message, error) {
	if !s.queue.isEmpty() {
		m := s.queue.pop()
		s.took(m)
		return m, nil
	}
	switch s.life.receiving {
	case isFinished:
		return Message{}, io.EOF
	case isReset:
		return Message{}, &Error{Number: layout.ErrorStreamReset, Code: s.life.receivingCode}
	case isStopped:
		return Message{}, &Error{Number: layout.ErrorStreamStoppedHere}
	}
	if s.session.err != nil {
		return Message{}, s.session.streamErr()
	}
	s.requestCredit()
	return Message{}, ErrEmpty
}

// SendErr returns the reason why this side can send no more on the stream, or nil while it can.
func (s *Stream) SendErr() error {
	switch {
	case s.life.sending == isStopped:
		return &Error{Number: layout.ErrorStreamStopped, Code: s.life.sendingCode}
	case s.life.sending != isOpen:
		return &Error{Number: layout.ErrorStreamFinishedHere}
	case s.session.err != nil:
		return s.session.streamErr()
	case s.session.isOutboxClosed:
		return &Error{Number: layout.ErrorDisconnected}
	}
	return nil
}

// MessageMax returns the longest message that the peer receives, in bytes.
func (s *Stream) MessageMax() uint64 { return s.session.config.PeerMessageMax }

// MayBegin returns nil if this side may begin to send a message of length bytes on the stream.
// Otherwise the error is that of [Stream.SendErr], an [Error] if the message is too long to be ever
// sent, or [ErrNoCredit]. With [ErrNoCredit], the call may make a record CREDIT pending. MayBegin
// panics if a record of the stream is pending.
func (s *Stream) MayBegin(length uint64) error {
	if err := s.SendErr(); err != nil {
		return err
	}
	if length > s.session.config.PeerMessageMax {
		return &Error{Number: layout.ErrorMessageTooLong}
	}
	if pending := s.pending(); pending.kind != 0 {
		panic(fmt.Sprintf("session: a message before the pending record %v", pending.kind))
	}
	s.waitsForCredit = !s.wire.MayBegin(length, s.session.config.PeerWindow)
	if s.waitsForCredit {
		s.requestCredit()
		return ErrNoCredit
	}
	return nil
}

// HasCredit reports whether [Stream.MayBegin] would return nil for a message of length bytes.
// Unlike MayBegin, HasCredit never makes a record pending.
func (s *Stream) HasCredit(length uint64) bool {
	return s.SendErr() == nil && length <= s.session.config.PeerMessageMax &&
		s.wire.MayBegin(length, s.session.config.PeerWindow)
}

// Begun counts a message of length bytes against the stream's credit, because its first record is
// written. [Stream.MayBegin] must have returned nil for this message.
func (s *Stream) Begun(length uint64) { s.wire.Send(length) }

// DueCredit returns the credit that a BLOB of this stream may carry, if any is due (SPEC 11.4).
// Once the BLOB is written, the caller calls [Stream.Credited].
func (s *Stream) DueCredit() (credited uint64, isDue bool) {
	return s.taken, s.life.receiving == isOpen && s.isCreditDue()
}

// Credited counts credit as sent to the peer, because a BLOB has carried it.
func (s *Stream) Credited(credited uint64) {
	s.wire.Credit(credited)
	s.isCreditPending = false
}

// CloseWrite ends this side's sending after all messages that were sent, and makes a record
// CLOSE_WRITE pending.
func (s *Stream) CloseWrite() {
	s.life.finish()
	s.session.outbox.list(s)
}

// Reset ends this side's sending on the stream, aborts a message that is only partly sent, and
// sends the code to the peer.
func (s *Stream) Reset(code uint32) {
	s.life.reset(code)
	s.session.outbox.list(s)
}

// Stop ends this side's receiving on the stream, drops the unread messages, and sends the code to
// the peer.
func (s *Stream) Stop(code uint32) {
	s.life.stop(code)
	if !fault.Is("unread_kept") {
		s.queue.drop()
	}
	s.parts = nil
	s.session.outbox.list(s)
}

// Abort gives up a message of which the first fragments were written, and makes a record
// FRAGMENT_ABORT pending.
func (s *Stream) Abort() {
	s.life.abort()
	s.session.outbox.list(s)
}

// receive handles a checked record of the peer on this stream, of any kind but OPEN and END.
func (s *Stream) receive(kind layout.Kind, payload []byte, m Message) Change {
	switch kind {
	case layout.KindData:
		return s.receiveMessage(m)
	case layout.KindBlob:
		change := s.receiveMessage(m)
		if blob, _ := layout.ParseBlob(payload); blob.HasCredit && !fault.Is("blob_credit_unseen") {
			change |= Writable
		}
		return change
	case layout.KindCredit:
		return Writable
	case layout.KindCloseWrite:
		s.life.receiveFinish()
		if !fault.Is("parts_kept") {
			s.parts = nil
		}
		return Readable
	case layout.KindReset:
		reset, _ := layout.ParseReset(payload)
		s.life.receiveReset(reset)
		if reset.Directions&layout.ResetSending != 0 {
			s.parts = nil
		}
		return Readable | Writable
	}
	return s.receivePart(kind, payload)
}

// receiveMessage queues a whole message for [Stream.Recv]. If this side has stopped receiving, it
// releases the message instead.
func (s *Stream) receiveMessage(m Message) Change {
	if s.life.receiving != isOpen {
		m.Release()
		return 0
	}
	s.queue.push(m)
	return Readable
}

// receivePart handles a fragment of a message (SPEC 5.5). The memory for the message grows with the
// bytes that have come, because the length that the peer announces is not trusted.
func (s *Stream) receivePart(kind layout.Kind, payload []byte) Change {
	if s.life.receiving != isOpen {
		return 0
	}
	switch kind {
	case layout.KindFragmentAbort:
		s.parts = nil
		_, total := s.wire.Assembly.Progress()
		s.taken += layout.Footprint(total)
		s.isCreditPending = s.isCreditPending || s.isCreditDue()
		return 0
	case layout.KindFragmentFirst:
		_, total := s.wire.Assembly.Progress()
		bytes := payload[layout.FragmentPrefixBytes:]
		s.parts = make([]byte, len(bytes), min(total, partsFactor*uint64(len(bytes))))
		copy(s.parts, bytes)
		return 0
	}
	s.parts = append(s.parts, payload...)
	if kind == layout.KindFragmentMid {
		return 0
	}
	s.queue.push(Message{Bytes: s.parts})
	s.parts = nil
	return Readable
}

// partsFactor is the ratio of the memory that is first allocated for a message in fragments to its
// first fragment. The memory for the whole message is not allocated at once, because the length
// that the peer announces is not trusted.
const partsFactor = 4

// took counts a message that the application has taken, and makes a record CREDIT pending where
// credit must not wait (SPEC 11.4). An example: the application has more messages to take, but the
// peer has no credit for another message of this length.
func (s *Stream) took(m Message) {
	s.taken += m.cost()
	if s.life.receiving != isOpen {
		s.session.outbox.list(s) // END may be due
		return
	}
	_, credited := s.wire.Charged()
	window := s.session.config.Window
	isStuck := !s.queue.isEmpty() && !s.wire.PeerMayBegin(uint64(len(m.Bytes)), window) &&
		!fault.Is("stuck_unseen")
	if s.waitsForCredit || isStuck || s.taken-credited > window/4*3 {
		s.requestCredit()
	}
}

// requestCredit makes a record CREDIT pending, if credit is due and this side still receives on the
// stream.
func (s *Stream) requestCredit() {
	if s.life.receiving == isOpen && s.isCreditDue() {
		s.isCreditPending = true
		s.session.outbox.list(s)
	}
}

// isCreditDue reports whether the application has taken messages worth half the window since this
// side last sent credit.
func (s *Stream) isCreditDue() bool {
	if s.wire == nil || fault.Is("credit_kept") {
		return false
	}
	_, credited := s.wire.Charged()
	return s.taken > credited && s.taken-credited >= s.session.config.Window/2
}

// pending returns the next record of the stream that this side must write.
func (s *Stream) pending() pendingRecord {
	if s.wire == nil {
		return pendingRecord{kind: layout.KindOpen}
	}
	next := s.life.pending()
	canCredit := s.isCreditPending && s.life.receiving == isOpen
	switch {
	case canCredit && (next.kind == 0 || next.kind == layout.KindCloseWrite):
		return pendingRecord{kind: layout.KindCredit}
	case next.kind == layout.KindEnd && !(s.isSeen && s.queue.isEmpty()) && !fault.Is("early_end"):
		return pendingRecord{} // what ended streams have unread would have no bound
	}
	return next
}

func (s *Stream) appendPayload(to []byte, record pendingRecord) []byte {
	switch record.kind {
	case layout.KindOpen:
		return layout.Open{Content: s.content, Metadata: s.metadata}.Append(to)
	case layout.KindReset:
		return record.reset.Append(to)
	case layout.KindCredit:
		return layout.AppendCredit(to, s.taken)
	}
	return to
}

func (s *Stream) wrote(record pendingRecord) {
	switch record.kind {
	case layout.KindOpen:
		s.wire = s.session.check.Open(s.number)
	case layout.KindCredit:
		s.Credited(s.taken)
	default:
		s.life.wrote(record, s.wire)
		if record.kind == layout.KindEnd {
			delete(s.session.streams, s.number)
		}
	}
}

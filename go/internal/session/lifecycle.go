// SPDX-License-Identifier: MIT OR Apache-2.0

package session

import (
	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/layout"
)

// A lifecycle is the state of both directions of a stream as one side sees them. It also holds the
// records about the directions that this side has not written yet (SPEC 11.3, 11.5).
//
//	sending   open ──finish──────▶ finished        receiving   open ──CLOSE_WRITE───▶ finished
//	               ──reset───────▶ reset                            ──RESET {sending}▶ reset
//	               ──RESET {rec.}▶ stopped                          ──stop───────────▶ stopped
//
// A direction is over in each state but open. The records of the peer were checked before.
// Lifecycles can be compared, because a test visits all states that the lifecycles of two sides can
// reach together.
type lifecycle struct {
	isOpener bool
	hasEnded bool // END was written by the answerer, or came to the opener

	sending, receiving         direction
	sendingCode, receivingCode uint32 // of the peer's RESET

	isAbortPending, isClosePending bool
	resetPending, stopPending      pendingCode
}

// A direction is the state of one direction of a stream, as one side sees it.
type direction uint8

const (
	isOpen     direction = iota
	isFinished           // its sender has said that everything was sent
	isReset              // its sender has given up
	isStopped            // its receiver takes no more
)

// A pendingCode is the code of a record RESET or GO_AWAY that is not written yet. Its zero value
// means that no such record is pending.
type pendingCode struct {
	is   bool
	code uint32
}

// finish ends the sending direction of the stream in good order, after the last message.
func (l *lifecycle) finish() {
	if l.sending == isOpen {
		l.sending, l.isClosePending = isFinished, true
	}
}

// reset ends the sending direction of the stream, and makes a record RESET pending, which tells the
// peer of this and ends a message that is only partly sent.
func (l *lifecycle) reset(code uint32) {
	if l.sending == isOpen {
		l.sending, l.resetPending = isReset, pendingCode{true, code}
		l.isAbortPending = false
	}
}

// stop ends the receiving direction of the stream, and makes a record RESET {receiving} pending,
// which tells the peer of this.
func (l *lifecycle) stop(code uint32) {
	if l.receiving == isOpen {
		l.receiving, l.stopPending = isStopped, pendingCode{true, code}
	}
}

// abort makes a record FRAGMENT_ABORT pending, because a message in fragments will not be
// completed.
func (l *lifecycle) abort() { l.isAbortPending = l.isAbortPending || l.sending == isOpen }

// receiveFinish ends the receiving direction, because the peer's record CLOSE_WRITE has come.
func (l *lifecycle) receiveFinish() { l.endReceiving(isFinished, 0) }

// receiveReset ends one direction of the stream, because the peer's record RESET has come.
func (l *lifecycle) receiveReset(r layout.Reset) {
	if r.Directions&layout.ResetSending != 0 {
		l.endReceiving(isReset, r.Code)
	}
	if r.Directions&layout.ResetReceiving == 0 {
		return
	}
	if l.sending == isOpen {
		l.sending, l.sendingCode = isStopped, r.Code
	}
	// The peer has stopped receiving and needs no more records about this side's sending direction,
	// so this side drops the pending ones.
	if !fault.Is("ends_after_stop") {
		l.isAbortPending, l.isClosePending, l.resetPending = false, false, pendingCode{}
	}
}

// endReceiving ends the receiving direction, because the peer has ended its sending. It drops a
// pending record RESET {receiving}, which asks the peer to stop sending and is no longer necessary.
func (l *lifecycle) endReceiving(how direction, code uint32) {
	if l.receiving == isOpen {
		l.receiving, l.receivingCode = how, code
	}
	l.stopPending = pendingCode{}
}

// receiveEnd drops all pending records of the stream, because the answerer has ended the stream
// with the record END.
func (l *lifecycle) receiveEnd() {
	l.hasEnded = true
	l.isAbortPending, l.isClosePending = false, false
	l.resetPending, l.stopPending = pendingCode{}, pendingCode{}
}

func (l *lifecycle) isOver() bool { return l.sending != isOpen && l.receiving != isOpen }

// A pendingRecord is a record of a stream that is not written yet. Its kind is 0 if there is none.
type pendingRecord struct {
	kind  layout.Kind
	reset layout.Reset // of KindReset
}

// pending returns the next record about the stream's directions that this side must write.
func (l *lifecycle) pending() pendingRecord {
	reset, stop := l.resetPending, l.stopPending
	switch {
	case l.hasEnded:
		return pendingRecord{}
	case l.isAbortPending:
		return pendingRecord{kind: layout.KindFragmentAbort}
	case reset.is && reset == stop:
		return pendingReset(reset.code, layout.ResetSending|layout.ResetReceiving)
	case reset.is:
		return pendingReset(reset.code, layout.ResetSending)
	case stop.is:
		return pendingReset(stop.code, layout.ResetReceiving)
	case l.isClosePending:
		return pendingRecord{kind: layout.KindCloseWrite}
	case !l.isOpener && l.isOver():
		return pendingRecord{kind: layout.KindEnd}
	}
	return pendingRecord{}
}

func pendingReset(code, directions uint32) pendingRecord {
	return pendingRecord{layout.KindReset, layout.Reset{Code: code, Directions: directions}}
}

// wrote removes a pending record, because it is written now. It also updates wire, the state of the
// stream according to the records that were written and received.
func (l *lifecycle) wrote(record pendingRecord, wire *layout.Stream) {
	switch record.kind {
	case layout.KindFragmentAbort:
		l.isAbortPending = false
	case layout.KindCloseWrite:
		l.isClosePending = false
		wire.Finish()
	case layout.KindEnd:
		l.hasEnded = true
		wire.End()
	case layout.KindReset:
		if record.reset.Directions&layout.ResetSending != 0 {
			l.resetPending = pendingCode{}
			wire.Finish()
		}
		if record.reset.Directions&layout.ResetReceiving != 0 {
			l.stopPending = pendingCode{}
			wire.Stop()
		}
	}
}

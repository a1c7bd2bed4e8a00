// SPDX-License-Identifier: MIT OR Apache-2.0

package session

import "partywall.test/go/internal/layout"

// A Writer writes records to the connection of a session.
type Writer interface {
	// WriteRecord writes one record, and returns false if there is no room for it now. The payload
	// is not used after the call. After an error the connection has ended.
	WriteRecord(kind layout.Kind, stream uint32, payload []byte) (bool, error)
}

// An outbox holds the pending records of the session itself, and a list of the streams that have
// pending records (SPEC 11.7). Each kind of record is pending at most once, with its newest value.
// Its zero value is empty.
//
//	PING answer ─▶ PING ─▶ GO_AWAY ─▶ GO_AWAY {CLOSING} ─▶ streams, first listed first
type outbox struct {
	mustAnswer bool
	answer     uint64 // token of the peer's newest PING
	ask        uint64 // token of this side's newest PING; 0 if it was written
	goAway     pendingCode
	farewell   *Error    // code and reason of this side's closing, unless they were written
	streams    []*Stream // streams that have a pending record, or had one, from index next on
	next       int
	body       []byte // of the last record that was written
}

// list adds a stream to the outbox's list of streams, if one of the stream's records is pending.
func (o *outbox) list(s *Stream) {
	if !s.isListed && s.pending().kind != 0 {
		s.isListed = true
		if o.next > len(o.streams)/2 {
			kept := copy(o.streams, o.streams[o.next:])
			clear(o.streams[kept:])
			o.streams, o.next = o.streams[:kept], 0
		}
		o.streams = append(o.streams, s)
	}
}

func (o *outbox) isEmpty() bool {
	return !o.mustAnswer && o.ask == 0 && !o.goAway.is && o.farewell == nil && len(o.streams) == 0
}

// flush writes the pending records, and returns whether there was room for all of them.
func (o *outbox) flush(w Writer) (bool, error) {
	if ok, err := o.flushOwn(w); !ok || err != nil {
		return false, err
	}
	for o.next < len(o.streams) {
		stream := o.streams[o.next]
		record := stream.pending()
		if record.kind == 0 {
			stream.isListed = false
			o.streams[o.next] = nil
			o.next++
			continue
		}
		o.body = stream.appendPayload(o.body[:0], record)
		if ok, err := w.WriteRecord(record.kind, stream.number, o.body); !ok || err != nil {
			return false, err
		}
		stream.wrote(record)
	}
	o.streams, o.next = o.streams[:0], 0
	return true, nil
}

// flushOwn writes the pending records of the session itself, stream 0.
func (o *outbox) flushOwn(w Writer) (bool, error) {
	if o.mustAnswer {
		o.body = layout.Ping{Answer: true, Token: o.answer}.Append(o.body[:0])
		if ok, err := w.WriteRecord(layout.KindPing, 0, o.body); !ok || err != nil {
			return false, err
		}
		o.mustAnswer = false
	}
	if o.ask != 0 {
		o.body = layout.Ping{Token: o.ask}.Append(o.body[:0])
		if ok, err := w.WriteRecord(layout.KindPing, 0, o.body); !ok || err != nil {
			return false, err
		}
		o.ask = 0
	}
	if o.goAway.is {
		o.body = layout.GoAway{Code: o.goAway.code}.Append(o.body[:0])
		if ok, err := w.WriteRecord(layout.KindGoAway, 0, o.body); !ok || err != nil {
			return false, err
		}
		o.goAway = pendingCode{}
	}
	if o.farewell != nil {
		o.body = layout.GoAway{
			Code:   o.farewell.Code,
			Flags:  layout.GoAwayClosing,
			Reason: []byte(o.farewell.Reason),
		}.Append(o.body[:0])
		if ok, err := w.WriteRecord(layout.KindGoAway, 0, o.body); !ok || err != nil {
			return false, err
		}
		o.farewell = nil
	}
	return true, nil
}

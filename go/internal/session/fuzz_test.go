// SPDX-License-Identifier: MIT OR Apache-2.0

package session

import (
	"encoding/binary"
	"testing"

	"partywall.test/go/internal/layout"
)

// FuzzSession passes any records, as of a hostile peer, to a session, between calls of its
// application. The session may refuse a record. It must not panic, nor keep more unread messages
// than credit allows.
//
// Each record of the input is its kind, its stream, two bytes of its length, and its payload.
func FuzzSession(f *testing.F) {
	for _, image := range images(f) {
		if !image.isRing {
			f.Add(fuzzRecords(image.content), []byte{1, 2, 3, 4, 5, 6, 7, 8})
		}
	}
	f.Fuzz(func(t *testing.T, records, acts []byte) {
		r := newImageReader(t, false)
		var streams []*Stream
		for len(records) >= 4 && r.session.Err() == nil {
			h := layout.Header{Kind: layout.Kind(records[0]), Stream: uint32(records[1])}
			h.Len = min(uint32(binary.LittleEndian.Uint16(records[2:])), uint32(len(records)-4))
			payload := records[4:][:h.Len]
			records = records[4+h.Len:]
			_, err := r.session.Receive(h, payload, Message{Bytes: payload})
			if (err == nil) != (r.session.Err() == nil) && h.Kind != layout.KindCloseWrite {
				t.Fatalf("%v, but the session is over with %v", err, r.session.Err())
			}
			if stream, err := r.session.Accept(); err == nil {
				streams = append(streams, stream)
			}
			if len(acts) > 0 && len(streams) > 0 {
				act(streams[int(acts[0]>>4)%len(streams)], acts[0]%16)
				acts = acts[1:]
			}
			r.flush(t)
			checkBounds(t, r.session)
		}
	})
}

// fuzzRecords returns the records of an image of one direction of a socket, in the format of
// FuzzSession's input.
func fuzzRecords(b []byte) []byte {
	var records []byte
	for len(b) >= layout.RecordHeaderBytes {
		kind := byte(binary.LittleEndian.Uint64(b) & layout.KindMask >> 1)
		length := min(binary.LittleEndian.Uint32(b[layout.RecordLenOffset:]), 2000)
		stream := b[layout.RecordStreamOffset]
		b = b[layout.RecordHeaderBytes:]
		length = min(length, uint32(len(b)))
		records = append(records, kind, stream, byte(length), byte(length>>8))
		records = append(records, b[:length]...)
		b = b[length:]
	}
	return records
}

// act performs an operation of the application on the stream or its session; the byte choice
// says which.
func act(s *Stream, choice byte) {
	switch choice {
	case 0:
		s.CloseWrite()
	case 1:
		s.Reset(1)
	case 2:
		s.Stop(1)
	case 3:
		s.Abort()
	case 4:
		s.session.GoAway(1)
	case 5:
		s.session.Close(1, "closed")
	case 6:
		if s.MayBegin(10) == nil {
			s.Begun(10)
		}
	default:
		_, _ = s.Recv()
	}
}

// checkBounds checks the limits of a session. The unread messages of a stream cost at most the
// window, or half the window and one message. Each side has at most as many streams as the other
// allows.
func checkBounds(t *testing.T, s *Session) {
	if limit := int(s.config.StreamsMax + s.config.PeerStreamsMax); len(s.streams) > limit {
		t.Fatalf("%d streams", len(s.streams))
	}
	for _, stream := range s.streams {
		var unread, last uint64
		for _, m := range stream.queue.messages[stream.queue.next:] {
			last = m.cost()
			unread += last
		}
		if window := s.config.Window; unread > window && unread-last > window/2 {
			t.Fatalf("stream %d has unread messages of cost %d", stream.number, unread)
		}
	}
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package session

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"partywall.test/go/internal/layout"
)

// A recorder is a [Writer] that keeps the records as text. It has room for a given number of
// records.
type recorder struct {
	records []string
	room    int
}

func (r *recorder) WriteRecord(kind layout.Kind, stream uint32, payload []byte) (bool, error) {
	if r.room == 0 {
		return false, nil
	}
	r.room--
	text := fmt.Sprintf("%v %d", kind, stream)
	if len(payload) > 0 {
		text += fmt.Sprintf(" %x", payload)
	}
	r.records = append(r.records, text)
	return true, nil
}

// flush lets the session write its pending records, and returns them as text.
func flush(t *testing.T, s *Session) []string {
	t.Helper()
	r := &recorder{room: 100}
	if isDone, err := s.Flush(r); !isDone || err != nil {
		t.Fatalf("%v, %v", isDone, err)
	}
	return r.records
}

func mustFlush(t *testing.T, s *Session, want ...string) {
	t.Helper()
	if got := flush(t, s); !slices.Equal(got, want) {
		t.Errorf("wrote %q, want %q", got, want)
	}
}

// testConfig is the configuration of an acceptor whose peer has the same limits.
var testConfig = Config{
	Role:           layout.RoleAcceptor,
	Limits:         layout.Limits{MapMax: 1 << 20, MessageMax: 1 << 20, SegmentsMax: 1},
	Window:         1000,
	StreamsMax:     4,
	PeerMessageMax: 1 << 20,
	PeerWindow:     1000,
	PeerStreamsMax: 4,
}

func testSession() *Session {
	return New(testConfig, layout.NewSegments(testConfig.Limits, 1<<20, 1<<20))
}

// receive passes a record to the session, which must accept it, and returns what the record has
// changed.
func receive(t *testing.T, s *Session, stream uint32, kind layout.Kind, payload []byte) Change {
	t.Helper()
	event, err := s.Receive(layout.Header{Kind: kind, Stream: stream}, payload, Message{Bytes: payload})
	if err != nil {
		t.Fatalf("%v of stream %d: %v", kind, stream, err)
	}
	return event.Change
}

// mustOpen opens a stream at this side, and writes its record OPEN.
func mustOpen(t *testing.T, s *Session) *Stream {
	t.Helper()
	stream, err := s.Open(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	flush(t, s)
	return stream
}

// mustAccept lets the session receive OPEN of the peer's stream with this number, and accepts the
// stream.
func mustAccept(t *testing.T, s *Session, number uint32) *Stream {
	t.Helper()
	receive(t, s, number, layout.KindOpen, layout.Open{}.Append(nil))
	stream, err := s.Accept()
	if err != nil || stream.Number() != number {
		t.Fatalf("accepted %v, %v", stream, err)
	}
	return stream
}

func mustFail(t *testing.T, err error, number layout.ErrorNumber, code uint32) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Number != number || e.Code != code {
		t.Errorf("%v, want %v with code %d", err, number, code)
	}
}

func reset(code, directions uint32) []byte {
	return layout.Reset{Code: code, Directions: directions}.Append(nil)
}

// send counts a message of n bytes against the stream's credit, as if the message had begun; no
// record is written.
func send(t *testing.T, s *Stream, n uint64) {
	t.Helper()
	if err := s.MayBegin(n); err != nil {
		t.Fatal(err)
	}
	s.Begun(n)
}

func TestPendingRecordsAreWrittenInOrder(t *testing.T) {
	s := testSession()
	stream, err := s.Open(1, []byte{0xab})
	if err != nil {
		t.Fatal(err)
	}
	stream.CloseWrite()
	s.GoAway(9)
	s.Ping()
	receive(t, s, 0, layout.KindPing, layout.Ping{Token: 4}.Append(nil))
	receive(t, s, 0, layout.KindPing, layout.Ping{Token: 5}.Append(nil))
	mustFlush(t, s,
		"ping 0 01000000000000000500000000000000",
		"ping 0 00000000000000000100000000000000",
		"go away 0 0900000000000000",
		"open 2 0100000000000000ab",
		"close write 2")
	mustFlush(t, s)
}

// SPEC 11.7: the connection has room for one record at a time. The other records stay pending, each
// with its newest value.
func TestFullConnectionKeepsRecordsPending(t *testing.T) {
	s := testSession()
	for range 3 {
		if _, err := s.Open(0, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.Ping()
	r := &recorder{}
	for step := range 5 {
		r.room = min(step, 1)
		isDone, err := s.Flush(r)
		if want := step == 4; isDone != want || err != nil {
			t.Fatalf("after %d records: done %v, %v", step, isDone, err)
		}
		if step == 0 {
			s.Ping()
		}
	}
	want := []string{
		"ping 0 00000000000000000200000000000000",
		"open 2 0000000000000000", "open 4 0000000000000000", "open 6 0000000000000000",
	}
	if !slices.Equal(r.records, want) {
		t.Errorf("wrote %q, want %q", r.records, want)
	}
}

// TestListStaysShortWhileItIsNeverEmpty lets the connection write, again and again, all pending
// records of streams but the last one. The list of streams with pending records must not grow, so
// the entries of streams whose records are written must become free.
func TestListStaysShortWhileItIsNeverEmpty(t *testing.T) {
	s := testSession()
	s.GoAway(0)
	flush(t, s)
	refused := layout.Open{}.Append(nil)
	for i := range 10_000 {
		number := uint32(1 + 2*(i%2))
		header := layout.Header{Kind: layout.KindOpen, Stream: number, Len: uint32(len(refused))}
		if _, err := s.Receive(header, refused, Message{}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			continue
		}
		// The connection has room for the two records of the other stream, RESET and END, and for
		// no more.
		if _, err := s.Flush(&recorder{room: 2}); err != nil {
			t.Fatal(err)
		}
		if got := len(s.outbox.streams); got > 4 {
			t.Fatalf("after %d streams the list has %d places", i+1, got)
		}
	}
}

func TestOpenReportsWhyNot(t *testing.T) {
	none := testConfig
	none.PeerStreamsMax = 0
	for _, test := range []struct {
		name   string
		config Config
		before func(*testing.T, *Session)
		length int
		number layout.ErrorNumber
		code   uint32
	}{
		{"metadata too long", testConfig, nil, 1001, layout.ErrorMetadataTooLong, 0},
		{"no streams", none, nil, 0, layout.ErrorNoStreams, 0},
		{"going away", testConfig, func(t *testing.T, s *Session) {
			receive(t, s, 0, layout.KindGoAway, layout.GoAway{Code: 7}.Append(nil))
			receive(t, s, 0, layout.KindGoAway, layout.GoAway{Code: 8}.Append(nil))
		}, 0, layout.ErrorGoingAway, 7},
		{"closed here", testConfig, func(_ *testing.T, s *Session) { s.Close(3, "x") }, 0,
			layout.ErrorSessionClosedHere, 3},
		{"closed by the peer", testConfig, func(t *testing.T, s *Session) {
			receive(t, s, 0, layout.KindCloseWrite, nil)
		}, 0, layout.ErrorFinished, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := New(test.config, nil)
			if test.before != nil {
				test.before(t, s)
			}
			_, err := s.Open(0, make([]byte, test.length))
			mustFail(t, err, test.number, test.code)
		})
	}
}

func TestNumbersAreUsedAgainOnceEnded(t *testing.T) {
	s := testSession()
	var streams []*Stream
	for want := range uint32(4) {
		stream := mustOpen(t, s)
		if stream.Number() != 2*want+2 {
			t.Errorf("number %d, want %d", stream.Number(), 2*want+2)
		}
		streams = append(streams, stream)
	}
	if _, err := s.Open(0, nil); !errors.Is(err, ErrNoNumber) {
		t.Errorf("a fifth stream: %v", err)
	}
	for _, i := range []int{2, 1} {
		streams[i].CloseWrite()
		flush(t, s)
		receive(t, s, streams[i].Number(), layout.KindCloseWrite, nil)
		if changes := receive(t, s, streams[i].Number(), layout.KindEnd, nil); changes&Freed == 0 {
			t.Errorf("END changes %b", changes)
		}
	}
	if again := mustOpen(t, s); again.Number() != 4 {
		t.Errorf("number %d is taken again, want the lowest", again.Number())
	}
}

// A million streams are opened and ended one after another. Neither side keeps a stream, and
// neither uses a second number or a longer list of streams.
func TestMillionStreamsLeaveNothing(t *testing.T) {
	streams := 1_000_000
	if raceEnabled || testing.Short() {
		streams = 50_000
	}
	p := newPair(t, 1)
	opener := p.ends[0]
	opener.room, opener.peer.room = 100, 100
	opener.session.numbers.max = 3
	opener.peer.session = New(Config{
		Role:       layout.RoleAcceptor,
		Limits:     testConfig.Limits,
		StreamsMax: 3,
	}, nil)
	for i := range streams {
		stream, err := opener.session.Open(0, nil)
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		stream.CloseWrite()
		p.flush(opener)
		for p.read(opener.peer) {
			if accepted, err := opener.peer.session.Accept(); err == nil {
				accepted.Reset(7)
			}
		}
		p.flush(opener.peer)
		for p.read(opener) {
		}
		if opener.session.StreamCount() != 0 || opener.peer.session.StreamCount() != 0 {
			t.Fatalf("stream %d has not ended", i)
		}
	}
	if fresh, capacity := opener.session.numbers.fresh, cap(opener.session.outbox.streams); fresh != 1 ||
		capacity > 8 {
		t.Errorf("%d numbers and an outbox of %d are left", fresh, capacity)
	}
}

// SPEC 11.6: once this side has sent GO_AWAY, it refuses with a record RESET a stream that the peer
// opens, and Accept never returns the stream.
func TestStreamAfterGoAwayIsRefused(t *testing.T) {
	s := testSession()
	mustAccept(t, s, 1)
	s.GoAway(1)
	flush(t, s)
	receive(t, s, 3, layout.KindOpen, layout.Open{}.Append(nil))
	if _, err := s.Accept(); !errors.Is(err, ErrEmpty) {
		t.Errorf("accepted with %v", err)
	}
	mustFlush(t, s, fmt.Sprintf("reset 3 %x", reset(layout.ResetRefused, 3)), "end 3")
	receive(t, s, 3, layout.KindData, []byte("under way"))
	if s.StreamCount() != 1 {
		t.Errorf("%d streams, want the one from before", s.StreamCount())
	}
}

// SPEC 11.6: if CLOSE_WRITE follows GO_AWAY {CLOSING}, the session ends with its code and reason.
func TestEndOfSession(t *testing.T) {
	closing := layout.GoAway{Code: 42, Flags: layout.GoAwayClosing, Reason: []byte("done")}.Append(nil)
	for _, test := range []struct {
		name           string
		act            func(*testing.T, *Session)
		ofSession      layout.ErrorNumber
		ofStream       layout.ErrorNumber
		code           uint32
		reason         string
		pendingRecords int
	}{
		{"CLOSE_WRITE", func(t *testing.T, s *Session) {
			receive(t, s, 0, layout.KindCloseWrite, nil)
		}, layout.ErrorFinished, layout.ErrorDisconnected, 0, "", 0},
		{"code and CLOSE_WRITE", func(t *testing.T, s *Session) {
			receive(t, s, 0, layout.KindGoAway, closing)
			receive(t, s, 0, layout.KindCloseWrite, nil)
		}, layout.ErrorSessionClosedByThePeer, layout.ErrorSessionClosedByThePeer, 42, "done", 0},
		{"code and disconnection", func(t *testing.T, s *Session) {
			receive(t, s, 0, layout.KindGoAway, closing)
			s.End(&Error{Number: layout.ErrorDisconnected})
		}, layout.ErrorDisconnected, layout.ErrorDisconnected, 0, "", 0},
		{"closed here", func(_ *testing.T, s *Session) {
			s.Close(5, "going")
		}, layout.ErrorSessionClosedHere, layout.ErrorSessionClosedHere, 5, "going", 1},
		{"closed here without a code", func(_ *testing.T, s *Session) {
			s.Close(0, "")
		}, layout.ErrorSessionClosedHere, layout.ErrorSessionClosedHere, 0, "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := testSession()
			stream := mustOpen(t, s)
			test.act(t, s)
			mustFail(t, s.Err(), test.ofSession, test.code)
			var e *Error
			if errors.As(s.Err(), &e) && e.Reason != test.reason {
				t.Errorf("the reason is %q, want %q", e.Reason, test.reason)
			}
			_, err := stream.Recv()
			mustFail(t, err, test.ofStream, test.code)
			mustFail(t, stream.SendErr(), test.ofStream, test.code)
			_, err = s.Accept()
			mustFail(t, err, test.ofSession, test.code)
			if got := flush(t, s); len(got) != test.pendingRecords {
				t.Errorf("pending: %q", got)
			}
		})
	}
}

// SPEC 11.6: messages and streams that came before the peer closed the session are still delivered.
func TestMessagesBeforeTheEndAreDelivered(t *testing.T) {
	s := testSession()
	stream := mustAccept(t, s, 1)
	receive(t, s, 1, layout.KindData, []byte("last"))
	receive(t, s, 3, layout.KindOpen, layout.Open{Metadata: []byte("late")}.Append(nil))
	receive(t, s, 0, layout.KindCloseWrite, nil)
	if m, err := stream.Recv(); err != nil || string(m.Bytes) != "last" {
		t.Errorf("%q, %v", m.Bytes, err)
	}
	if late, err := s.Accept(); err != nil || string(late.Metadata()) != "late" {
		t.Errorf("%v, %v", late, err)
	}
	if _, err := stream.Recv(); err == io.EOF {
		t.Error("the end of the session is taken for the end of the stream")
	}
}

// SPEC 7.2: a side whose connection accepts no more records still receives the records that came
// before.
func TestCutOffSideReceivesTheRest(t *testing.T) {
	s := testSession()
	stream := mustAccept(t, s, 1)
	stream.CloseWrite()
	other := mustAccept(t, s, 3)
	s.CutOff()
	mustFlush(t, s)
	mustFail(t, other.MayBegin(1), layout.ErrorDisconnected, 0)
	_, err := s.Open(0, nil)
	mustFail(t, err, layout.ErrorDisconnected, 0)
	receive(t, s, 1, layout.KindData, []byte("committed"))
	if m, err := stream.Recv(); err != nil || string(m.Bytes) != "committed" {
		t.Errorf("%q, %v", m.Bytes, err)
	}
}

func TestReasonIsCutBeforeACharacter(t *testing.T) {
	s := testSession()
	s.Close(1, strings.Repeat("x", 254)+"ä and more")
	mustFlush(t, s, fmt.Sprintf("go away 0 0100000001000000%s", strings.Repeat("78", 254)))
}

func TestAnswersToPings(t *testing.T) {
	s := testSession()
	first, second := s.Ping(), s.Ping()
	answer := func(token uint64) {
		receive(t, s, 0, layout.KindPing, layout.Ping{Answer: true, Token: token}.Append(nil))
	}
	answer(second + 1)
	if s.Answered() != 0 {
		t.Error("an answer that nobody asked for counts")
	}
	answer(second)
	answer(first)
	if s.Answered() != second {
		t.Errorf("answered %d, want %d", s.Answered(), second)
	}
}

func TestViolationEndsTheSession(t *testing.T) {
	s := testSession()
	stream := mustAccept(t, s, 1)
	stream.CloseWrite()
	e := &end{owned: 1}
	event, err := s.Receive(layout.Header{Kind: layout.KindData, Stream: 9}, nil, Message{Owner: e})
	if !errors.Is(err, layout.ViolationStream) || event.Change != Over || e.owned != 0 {
		t.Errorf("%v, %+v, %d messages are lent", err, event, e.owned)
	}
	if _, err := stream.Recv(); s.HasPending() || !errors.Is(err, layout.ViolationStream) {
		t.Errorf("pending %v, the stream fails with %v", s.HasPending(), err)
	}
}

func TestClosedSessionGivesMemoryBack(t *testing.T) {
	s := testSession()
	mustAccept(t, s, 1)
	e := &end{}
	blob := layout.Blob{Length: 3}.Append(nil)
	lend := func() {
		e.owned++
		m := Message{Bytes: []byte("abc"), Owner: e}
		if _, err := s.Receive(layout.Header{Kind: layout.KindBlob, Stream: 1}, blob, m); err != nil {
			t.Fatal(err)
		}
	}
	lend()
	s.Close(0, "")
	lend()
	if e.owned != 0 {
		t.Errorf("%d messages are lent", e.owned)
	}
}

// SPEC 5.5: three fragments are received as one message. The session copies their bytes.
func TestFragmentsMakeAMessage(t *testing.T) {
	s := testSession()
	stream := mustAccept(t, s, 1)
	first := append([]byte{10, 0, 0, 0, 0, 0, 0, 0}, "abc"...)
	receive(t, s, 1, layout.KindFragmentFirst, first)
	first[8] = 'x' // the session has copied it
	receive(t, s, 1, layout.KindFragmentMid, []byte("defg"))
	if _, err := stream.Recv(); !errors.Is(err, ErrEmpty) {
		t.Errorf("a part is received: %v", err)
	}
	if changes := receive(t, s, 1, layout.KindFragmentLast, []byte("hij")); changes != Readable {
		t.Errorf("changes %b", changes)
	}
	if m, err := stream.Recv(); err != nil || !bytes.Equal(m.Bytes, []byte("abcdefghij")) {
		t.Errorf("%q, %v", m.Bytes, err)
	}
}

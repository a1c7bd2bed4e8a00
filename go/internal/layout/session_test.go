// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

import (
	"errors"
	"math"
	"testing"
)

// testSession returns the state of a session at an acceptor, over a socket, with a stream window of
// 1,000 bytes.
func testSession() *Session {
	return NewSession(SessionConfig{
		Limits:       Limits{MessageMax: 1 << 20},
		Role:         RoleAcceptor,
		StreamWindow: 1000,
		StreamsMax:   2,
	}, nil)
}

func record(kind Kind, stream uint32) Header { return Header{Kind: kind, Stream: stream} }

func mustReceive(t *testing.T, s *Session, stream uint32, kinds ...Kind) {
	t.Helper()
	for _, kind := range kinds {
		if err := s.Receive(record(kind, stream), payloadOf(kind)); err != nil {
			t.Fatalf("%v of stream %d: %v", kind, stream, err)
		}
	}
}

func payloadOf(kind Kind) []byte {
	switch kind {
	case KindData:
		return []byte("message")
	case KindOpen:
		return Open{}.Append(nil)
	case KindReset:
		return Reset{Directions: ResetSending | ResetReceiving}.Append(nil)
	case KindCredit, KindFragmentFirst:
		return make([]byte, 8)
	case KindBlob:
		return Blob{Length: 100}.Append(nil)
	}
	return nil
}

// SPEC 11.5: this side, the answerer of a stream, ends the stream with the record END. Records that
// the opener sent before the opener read END still arrive, and this side drops them. The next
// record OPEN of the opener begins a new stream with the same number.
func TestRecordsAfterEndAreDropped(t *testing.T) {
	s := testSession()
	mustReceive(t, s, 1, KindOpen, KindData, KindReset)
	s.Stream(1).End()
	mustReceive(t, s, 1, KindData, KindFragmentMid, KindCloseWrite, KindCredit, KindReset, KindBlob)
	if err := s.Receive(record(KindCredit, 1), []byte("short")); !errors.Is(err, ViolationBody) {
		t.Errorf("a dropped record with a payload of the wrong size: %v", err)
	}
	mustReceive(t, s, 1, KindOpen, KindData, KindCloseWrite)
	if err := s.Receive(record(KindData, 1), nil); !errors.Is(err, ViolationStream) {
		t.Errorf("a message after CLOSE_WRITE of the new stream: %v", err)
	}
}

// SPEC 11.5: the peer's record END frees the number of a stream that this side opened, and a later
// record of the peer with that number is a violation.
func TestNumberIsFreeAfterEnd(t *testing.T) {
	s := testSession()
	for range 3 {
		s.Open(2).Finish()
		mustReceive(t, s, 2, KindData, KindCloseWrite, KindEnd)
		if s.Stream(2) != nil {
			t.Fatal("the stream is there after END")
		}
	}
	if err := s.Receive(record(KindCredit, 2), make([]byte, 8)); !errors.Is(err, ViolationStream) {
		t.Errorf("CREDIT after END: %v", err)
	}
}

// SPEC 11.3: each side can end both directions of a stream. The record END of the peer is a
// violation while a direction is open.
func TestEndNeedsBothDirections(t *testing.T) {
	for _, test := range []struct {
		name string
		acts func(*testing.T, *Session, *Stream)
		want error
	}{
		{"neither", func(*testing.T, *Session, *Stream) {}, ViolationStream},
		{"own CLOSE_WRITE", func(_ *testing.T, _ *Session, s *Stream) { s.Finish() }, ViolationStream},
		{"own stop", func(_ *testing.T, _ *Session, s *Stream) { s.Stop() }, ViolationStream},
		{"own CLOSE_WRITE and stop", func(_ *testing.T, _ *Session, s *Stream) { s.Finish(); s.Stop() }, nil},
		{"own and peer's CLOSE_WRITE", func(t *testing.T, all *Session, s *Stream) {
			s.Finish()
			mustReceive(t, all, 2, KindCloseWrite)
		}, nil},
		{"peer's RESET of both", func(t *testing.T, all *Session, _ *Stream) {
			mustReceive(t, all, 2, KindReset)
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := testSession()
			stream := s.Open(2)
			test.acts(t, s, stream)
			if err := s.Receive(record(KindEnd, 2), nil); !errors.Is(err, test.want) {
				t.Errorf("END: %v, want %v", err, test.want)
			}
		})
	}
}

// SPEC 11.4: the messages that the peer sends use up its credit, whether they come as DATA, BLOB or
// fragments. Once this side has returned credit, the peer may send more.
func TestCreditIsChargedAndReturned(t *testing.T) {
	s := testSession()
	mustReceive(t, s, 1, KindOpen)
	data := make([]byte, 480) // of cost 512
	receive := func(kind Kind, payload []byte) error { return s.Receive(record(kind, 1), payload) }
	if err := receive(KindData, data); err != nil {
		t.Fatal(err)
	}
	charged, credited := s.Stream(1).Charged()
	if charged != 512 || credited != 0 {
		t.Fatalf("charged %d, credited %d; want 512, 0", charged, credited)
	}
	s.Stream(1).Credit(charged)
	// Only half of the window is used by unread messages, so a message of any length may begin.
	if err := receive(KindBlob, Blob{Length: 1 << 20}.Append(nil)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		kind    Kind
		payload []byte
	}{
		{KindData, nil}, {KindBlob, Blob{}.Append(nil)}, {KindFragmentFirst, make([]byte, 8)},
	} {
		if err := receive(test.kind, test.payload); !errors.Is(err, ViolationCredit) {
			t.Errorf("%v beyond the window: %v", test.kind, err)
		}
	}
}

// SPEC 11.4: credit that a BLOB carries is checked by the same rules as CREDIT.
func TestCreditInABlob(t *testing.T) {
	for _, test := range []struct {
		name     string
		credited uint64
		isOver   bool // the peer has sent RESET {receiving}
		want     error
	}{
		{"what was sent", 128, false, nil},
		{"more than was sent", 129, false, ViolationCredit},
		{"after RESET", 128, true, ViolationStream},
	} {
		t.Run(test.name, func(t *testing.T) {
			limits := Limits{MessageMax: 1 << 20}
			config := SessionConfig{Limits: limits, Role: RoleAcceptor, StreamWindow: 1000}
			s := NewSession(config, NewSegments(limits, 131072, 114688))
			s.Open(2).Send(100)
			if test.isOver {
				reset := Reset{Directions: ResetReceiving}.Append(nil)
				if err := s.Receive(record(KindReset, 2), reset); err != nil {
					t.Fatal(err)
				}
			}
			body := Blob{Length: 5, HasCredit: true, Credited: test.credited}.Append(nil)
			if err := s.Receive(record(KindBlob, 2), body); !errors.Is(err, test.want) {
				t.Errorf("read with %v, want %v", err, test.want)
			}
		})
	}
}

// SPEC 11.1: the connector opens streams with odd numbers, the acceptor with even ones. An OPEN
// with a number of the other side, or with a number that is too high, is a violation.
func TestNumbersOfTheSides(t *testing.T) {
	for _, test := range []struct {
		role, number uint32
		want         error
	}{
		{RoleAcceptor, 1, nil},
		{RoleAcceptor, 3, nil},
		{RoleAcceptor, 5, ViolationStream},
		{RoleAcceptor, 2, ViolationStream},
		{RoleConnector, 2, nil},
		{RoleConnector, 4, nil},
		{RoleConnector, 6, ViolationStream},
		{RoleConnector, 1, ViolationStream},
	} {
		s := NewSession(SessionConfig{Role: test.role, StreamsMax: 2}, nil)
		err := s.Receive(record(KindOpen, test.number), payloadOf(KindOpen))
		if !errors.Is(err, test.want) {
			t.Errorf("role %d, number %d: %v, want %v", test.role, test.number, err, test.want)
		}
	}
}

func TestMisuseOfAStreamIsAProgramError(t *testing.T) {
	for name, act := range map[string]func(){
		"number of the peer":     func() { testSession().Open(1) },
		"number that is in use":  func() { s := testSession(); s.Open(2); s.Open(2) },
		"credit not charged":     func() { testSession().Open(2).Credit(1) },
		"END by the opener":      func() { s := testSession().Open(2); s.Finish(); s.Stop(); s.End() },
		"END of an open stream":  func() { (&Stream{}).End() },
		"END twice by answerers": func() { s := &Stream{hasFinished: true, hasStopped: true}; s.End(); s.End() },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it did not panic")
				}
			}()
			act()
		})
	}
}

// SPEC 11.3: when the peer ends its direction of a stream, this side drops a message of which only
// the first fragment has come.
func TestEndOfDirectionEndsTheMessage(t *testing.T) {
	for _, end := range []Kind{KindCloseWrite, KindReset} {
		s := testSession()
		mustReceive(t, s, 1, KindOpen, KindFragmentFirst)
		if !s.Stream(1).Assembly.IsWithin() {
			t.Fatal("a first part begins no message")
		}
		mustReceive(t, s, 1, end)
		if s.Stream(1).Assembly.IsWithin() {
			t.Errorf("the message goes on after %v", end)
		}
	}
}

// SPEC 8.2: on a socket, the body of a BLOB has zero in its fields block, segment, zero and offset.
// The test sets each byte of the body to 1 in turn, which must be a violation.
func TestBlobOnSocketHasNoPlace(t *testing.T) {
	for offset := range BlobBytes {
		body := Blob{}.Append(nil)
		body[offset] = 1
		want := error(ViolationBody)
		if offset == BlobLengthOffset {
			want = nil
		}
		if offset > BlobLengthOffset {
			want = ViolationMessageLength
		}
		c := NewChannel(Limits{MessageMax: 255}, nil)
		if err := c.Receive(record(KindBlob, 0), body); !errors.Is(err, want) {
			t.Errorf("byte %d is 1: %v, want %v", offset, err, want)
		}
	}
}

// SPEC 11.4: computing the cost of a message of nearly 2^64 bytes does not overflow, so the session
// finds that the message exceeds the credit, and refuses it.
func TestLongestMessageIsChargedWithoutOverflow(t *testing.T) {
	for _, length := range []uint64{1 << 62, 1<<62 + 1, math.MaxUint64 - 80, math.MaxUint64} {
		limits := Limits{MessageMax: math.MaxUint64}
		s := NewSession(SessionConfig{Limits: limits, Role: RoleAcceptor, StreamsMax: 1}, nil)
		mustReceive(t, s, 1, KindOpen, KindData) // half the window of 0 is unread
		err := s.Receive(record(KindBlob, 1), Blob{Length: length}.Append(nil))
		if !errors.Is(err, ViolationCredit) {
			t.Errorf("a message of %d bytes: %v", length, err)
		}
	}
}

// SPEC 11.4: in the largest window, the cost of several unread messages of 2^62 bytes does not
// overflow.
func TestLargestWindowIsChargedWithoutOverflow(t *testing.T) {
	limits := Limits{MessageMax: math.MaxUint64}
	config := SessionConfig{
		Limits: limits, Role: RoleAcceptor, StreamsMax: 1, StreamWindow: math.MaxUint64,
	}
	s := NewSession(config, nil)
	mustReceive(t, s, 1, KindOpen)
	body := Blob{Length: 1 << 62}.Append(nil)
	for n, want := range []error{nil, nil, nil, ViolationCredit} {
		if err := s.Receive(record(KindBlob, 1), body); !errors.Is(err, want) {
			t.Errorf("message %d: %v, want %v", n, err, want)
		}
	}
}

func TestCloseWriteOfAChannelEndsTheMessage(t *testing.T) {
	c := NewChannel(Limits{MessageMax: 8}, NewSegments(Limits{}, 0, 0))
	for _, kind := range []Kind{KindFragmentFirst, KindCloseWrite} {
		if err := c.Receive(record(kind, 0), payloadOf(kind)); err != nil {
			t.Fatalf("%v: %v", kind, err)
		}
	}
	if !c.IsClosed() || c.Assembly.IsWithin() {
		t.Errorf("closed %v, within a message %v", c.IsClosed(), c.Assembly.IsWithin())
	}
}

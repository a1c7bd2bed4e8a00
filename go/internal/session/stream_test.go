// SPDX-License-Identifier: MIT OR Apache-2.0

package session

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"partywall.test/go/internal/layout"
)

func TestReceivingEnds(t *testing.T) {
	for _, test := range []struct {
		name string
		act  func(*testing.T, *Session, *Stream)
		want error
	}{
		{"nothing", func(*testing.T, *Session, *Stream) {}, ErrEmpty},
		{"CLOSE_WRITE", func(t *testing.T, s *Session, _ *Stream) {
			receive(t, s, 1, layout.KindCloseWrite, nil)
		}, io.EOF},
		{"RESET {sending}", func(t *testing.T, s *Session, _ *Stream) {
			receive(t, s, 1, layout.KindReset, reset(7, layout.ResetSending))
		}, &Error{Number: layout.ErrorStreamReset, Code: 7}},
		{"RESET {receiving}", func(t *testing.T, s *Session, _ *Stream) {
			receive(t, s, 1, layout.KindReset, reset(7, layout.ResetReceiving))
		}, ErrEmpty},
		{"stop", func(_ *testing.T, _ *Session, stream *Stream) {
			stream.Stop(1)
		}, &Error{Number: layout.ErrorStreamStoppedHere}},
		{"stop, then CLOSE_WRITE", func(t *testing.T, s *Session, stream *Stream) {
			stream.Stop(1)
			receive(t, s, 1, layout.KindCloseWrite, nil)
		}, &Error{Number: layout.ErrorStreamStoppedHere}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := testSession()
			stream := mustAccept(t, s, 1)
			test.act(t, s, stream)
			if _, err := stream.Recv(); fmt.Sprint(err) != fmt.Sprint(test.want) {
				t.Errorf("received with %v, want %v", err, test.want)
			}
		})
	}
}

func TestSendingEnds(t *testing.T) {
	for _, test := range []struct {
		name   string
		act    func(*testing.T, *Session, *Stream)
		number layout.ErrorNumber
		code   uint32
	}{
		{"CLOSE_WRITE", func(_ *testing.T, _ *Session, stream *Stream) {
			stream.CloseWrite()
		}, layout.ErrorStreamFinishedHere, 0},
		{"reset", func(_ *testing.T, _ *Session, stream *Stream) {
			stream.Reset(1)
		}, layout.ErrorStreamFinishedHere, 0},
		{"RESET {receiving} twice", func(t *testing.T, s *Session, _ *Stream) {
			receive(t, s, 1, layout.KindReset, reset(7, layout.ResetReceiving))
			receive(t, s, 1, layout.KindReset, reset(8, layout.ResetReceiving))
		}, layout.ErrorStreamStopped, 7},
		{"RESET {receiving} after CLOSE_WRITE", func(t *testing.T, s *Session, stream *Stream) {
			stream.CloseWrite()
			receive(t, s, 1, layout.KindReset, reset(7, layout.ResetReceiving))
		}, layout.ErrorStreamFinishedHere, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := testSession()
			stream := mustAccept(t, s, 1)
			test.act(t, s, stream)
			mustFail(t, stream.SendErr(), test.number, test.code)
			mustFail(t, stream.MayBegin(1), test.number, test.code)
		})
	}
}

func TestRecordsOfEnds(t *testing.T) {
	for _, test := range []struct {
		name string
		act  func(*testing.T, *Session, *Stream)
		want []string
	}{
		{"finish and stop", func(_ *testing.T, _ *Session, s *Stream) { s.CloseWrite(); s.Stop(2) },
			[]string{fmt.Sprintf("reset 1 %x", reset(2, 2)), "close write 1", "end 1"}},
		{"reset and stop with one code", func(_ *testing.T, _ *Session, s *Stream) {
			s.Reset(2)
			s.Stop(2)
		}, []string{fmt.Sprintf("reset 1 %x", reset(2, 3)), "end 1"}},
		{"reset and stop with two codes", func(_ *testing.T, _ *Session, s *Stream) {
			s.Reset(2)
			s.Stop(3)
		}, []string{
			fmt.Sprintf("reset 1 %x", reset(2, 1)), fmt.Sprintf("reset 1 %x", reset(3, 2)), "end 1",
		}},
		{"a message given up", func(t *testing.T, _ *Session, s *Stream) {
			send(t, s, 100)
			s.Abort()
			s.CloseWrite()
		}, []string{"fragment abort 1", "close write 1"}},
		{"a message that a reset ends", func(t *testing.T, _ *Session, s *Stream) {
			send(t, s, 100)
			s.Abort()
			s.Reset(1)
		}, []string{fmt.Sprintf("reset 1 %x", reset(1, 1))}},
		{"stopped by the peer", func(t *testing.T, all *Session, s *Stream) {
			s.CloseWrite()
			receive(t, all, 1, layout.KindReset, reset(1, layout.ResetReceiving))
			s.Reset(1)
			s.Abort()
		}, nil},
		{"finished by the peer", func(t *testing.T, all *Session, s *Stream) {
			s.Stop(1)
			receive(t, all, 1, layout.KindCloseWrite, nil)
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := testSession()
			stream := mustAccept(t, s, 1)
			test.act(t, s, stream)
			mustFlush(t, s, test.want...)
		})
	}
}

// SPEC 11.5: the peer opens a stream and ends both directions. This side makes END pending only
// once its application has accepted the stream and taken the stream's messages.
func TestEndWaitsForTheApplication(t *testing.T) {
	s := testSession()
	receive(t, s, 1, layout.KindOpen, layout.Open{}.Append(nil))
	receive(t, s, 1, layout.KindData, []byte("one"))
	receive(t, s, 1, layout.KindReset, reset(7, 3))
	mustFlush(t, s)
	stream, err := s.Accept()
	if err != nil {
		t.Fatal(err)
	}
	mustFlush(t, s)
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	mustFlush(t, s, "end 1")
	_, err = stream.Recv()
	mustFail(t, err, layout.ErrorStreamReset, 7)
	receive(t, s, 3, layout.KindOpen, layout.Open{}.Append(nil))
	receive(t, s, 3, layout.KindReset, reset(7, 3)) // without messages
	mustFlush(t, s)
	if _, err := s.Accept(); err != nil {
		t.Fatal(err)
	}
	mustFlush(t, s, "end 3")
}

func TestStopDropsTheUnread(t *testing.T) {
	s := testSession()
	stream := mustAccept(t, s, 1)
	e := &end{owned: 1}
	blob := layout.Blob{Length: 3}.Append(nil)
	m := Message{Bytes: []byte("abc"), Owner: e}
	if _, err := s.Receive(layout.Header{Kind: layout.KindBlob, Stream: 1}, blob, m); err != nil {
		t.Fatal(err)
	}
	receive(t, s, 1, layout.KindCloseWrite, nil)
	stream.CloseWrite()
	stream.Stop(1)
	if e.owned != 0 {
		t.Error("the unread message is lent")
	}
	mustFlush(t, s, "close write 1", "end 1")
}

// Lengths of payloads whose messages cost 64, 512 and 768 bytes of credit.
const empty, half, most = 0, 480, 720

// creditCases are calls of an application on a stream whose window is 1,000 bytes, and the records
// that are pending after the calls (SPEC 11.4).
var creditCases = []struct {
	name string
	act  func(*testing.T, *Session, *Stream)
	want []string
}{
	{"less than half taken, and asked for more", func(t *testing.T, all *Session, s *Stream) {
		take(t, all, s, empty, empty)
		_, _ = s.Recv()
	}, nil},
	{"half taken, and not asked for more", func(t *testing.T, all *Session, s *Stream) {
		take(t, all, s, half)
	}, nil},
	{"half taken, and asked for more", func(t *testing.T, all *Session, s *Stream) {
		take(t, all, s, half)
		_, _ = s.Recv()
		_, _ = s.Recv()
	}, []string{credit(512)}},
	{"half taken, and waits to send", func(t *testing.T, all *Session, s *Stream) {
		take(t, all, s, half)
		send(t, s, 800)
		if err := s.MayBegin(800); !errors.Is(err, ErrNoCredit) {
			t.Errorf("a second message may begin: %v", err)
		}
	}, []string{credit(512)}},
	{"waits to send, and half taken then", func(t *testing.T, all *Session, s *Stream) {
		send(t, s, 800)
		if err := s.MayBegin(800); !errors.Is(err, ErrNoCredit) {
			t.Errorf("a second message may begin: %v", err)
		}
		take(t, all, s, half)
	}, []string{credit(512)}},
	{"half taken, one unread, and no credit left for another", func(
		t *testing.T, all *Session, s *Stream,
	) {
		for range 3 {
			receive(t, all, 1, layout.KindData, make([]byte, 240))
		}
		for range 2 {
			if _, err := s.Recv(); err != nil {
				t.Fatal(err)
			}
		}
	}, []string{credit(512)}},
	{"three quarters taken", func(t *testing.T, all *Session, s *Stream) {
		take(t, all, s, most)
	}, []string{credit(768)}},
	{"half taken, and then the end", func(t *testing.T, all *Session, s *Stream) {
		take(t, all, s, half)
		receive(t, all, 1, layout.KindCloseWrite, nil)
		_, _ = s.Recv()
	}, nil},
	{"half taken, and then stopped", func(t *testing.T, all *Session, s *Stream) {
		take(t, all, s, most)
		s.Stop(1)
	}, []string{fmt.Sprintf("reset 1 %x", reset(1, 2))}},
	{"credit before the end of sending", func(t *testing.T, all *Session, s *Stream) {
		take(t, all, s, most)
		s.CloseWrite()
	}, []string{credit(768), "close write 1"}},
	{"an aborted message", func(t *testing.T, all *Session, s *Stream) {
		receive(t, all, 1, layout.KindFragmentFirst, []byte{0, 3, 0, 0, 0, 0, 0, 0, 'x'})
		receive(t, all, 1, layout.KindFragmentAbort, nil)
	}, []string{credit(832)}},
	{"credit that a BLOB has carried", func(t *testing.T, all *Session, s *Stream) {
		take(t, all, s, half)
		credited, isDue := s.DueCredit()
		if !isDue || credited != 512 {
			t.Errorf("due %v, %d", isDue, credited)
		}
		s.Credited(credited)
		_, _ = s.Recv()
	}, nil},
}

func TestCreditIsSentWhenDue(t *testing.T) {
	for _, test := range creditCases {
		t.Run(test.name, func(t *testing.T) {
			s := testSession()
			stream := mustAccept(t, s, 1)
			test.act(t, s, stream)
			mustFlush(t, s, test.want...)
		})
	}
}

// take lets the session receive messages of these lengths on stream 1, and lets the application
// take all of them.
func take(t *testing.T, all *Session, s *Stream, lengths ...int) {
	t.Helper()
	for _, n := range lengths {
		receive(t, all, 1, layout.KindData, make([]byte, n))
	}
	for range lengths {
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
}

// credit returns the text of a CREDIT of stream 1, as a recorder writes it.
func credit(credited uint64) string {
	return fmt.Sprintf("credit 1 %x", layout.AppendCredit(nil, credited))
}

// TestCreditOfTwoSides sends messages of random lengths, with random windows. The sender must begin
// exactly those messages that the formula of SPEC 11.4 allows, and the receiver must refuse none.
// Once the receiving application has taken all messages and asks for more, any message may begin.
func TestCreditOfTwoSides(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 4))
	for range 300 {
		window := random.Uint64N(3000)
		config := testConfig
		config.Window, config.PeerWindow = window, window
		receiver := New(config, nil)
		in := mustAccept(t, receiver, 1)
		config.Role = layout.RoleConnector
		sender := New(config, nil)
		out := mustOpen(t, sender)
		var sent, credited uint64
		for range 200 {
			length := random.Uint64N(2 * (window + 10))
			cost := layout.Footprint(length)
			mayBegin := sent+cost-credited <= window || sent-credited <= window/2
			err := out.MayBegin(length)
			if (err == nil) != mayBegin {
				t.Fatalf("window %d, sent %d, credited %d, cost %d: %v", window, sent, credited, cost, err)
			}
			if mayBegin {
				out.Begun(length)
				sent += cost
				receive(t, receiver, 1, layout.KindData, make([]byte, length))
			}
			isAll := random.IntN(10) == 0
			for isAll || random.IntN(3) == 0 {
				if _, err := in.Recv(); err != nil {
					break
				}
			}
			_, _ = receiver.Flush(writerFunc(func(kind layout.Kind, payload []byte) {
				if kind == layout.KindCredit {
					credited, _ = layout.ParseCredit(payload)
					receive(t, sender, 1, kind, payload)
				}
			}))
			if err := out.MayBegin(1 << 20); isAll && err != nil {
				t.Fatalf("window %d, all taken, sent %d, credited %d: %v", window, sent, credited, err)
			}
		}
	}
}

// A writerFunc is a [Writer] that calls a function with each record.
type writerFunc func(kind layout.Kind, payload []byte)

func (w writerFunc) WriteRecord(kind layout.Kind, _ uint32, payload []byte) (bool, error) {
	w(kind, payload)
	return true, nil
}

func TestMisuseIsAProgramError(t *testing.T) {
	s := testSession()
	stream, err := s.Open(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a message may begin before OPEN is written")
		}
	}()
	_ = stream.MayBegin(1)
}

func TestMessageThatCanNeverBeSent(t *testing.T) {
	s := testSession()
	mustFail(t, mustOpen(t, s).MayBegin(1<<20+1), layout.ErrorMessageTooLong, 0)
}

func TestBlobWithCreditWakesSenders(t *testing.T) {
	s := testSession()
	stream := mustAccept(t, s, 1)
	send(t, stream, 48)
	for _, hasCredit := range []bool{false, true} {
		blob := layout.Blob{Length: 3, HasCredit: hasCredit, Credited: 64}.Append(nil)
		header := layout.Header{Kind: layout.KindBlob, Stream: 1}
		event, err := s.Receive(header, blob, Message{Bytes: []byte("abc")})
		if err != nil || event.Change&Readable == 0 || event.Change&Writable != 0 != hasCredit {
			t.Errorf("credit %v: changes %b, %v", hasCredit, event.Change, err)
		}
	}
}

// A message in fragments is never completed. This side frees the memory of its fragments when the
// peer ends its direction or aborts the message, or when this side stops receiving or ends the
// session.
func TestUnfinishedMessageIsForgotten(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *Session, *Stream){
		"CLOSE_WRITE": func(t *testing.T, s *Session, _ *Stream) {
			receive(t, s, 1, layout.KindCloseWrite, nil)
		},
		"RESET": func(t *testing.T, s *Session, _ *Stream) {
			receive(t, s, 1, layout.KindReset, reset(1, layout.ResetSending))
		},
		"FRAGMENT_ABORT": func(t *testing.T, s *Session, _ *Stream) {
			receive(t, s, 1, layout.KindFragmentAbort, nil)
		},
		"stop":         func(_ *testing.T, _ *Session, stream *Stream) { stream.Stop(1) },
		"close":        func(_ *testing.T, s *Session, _ *Stream) { s.Close(0, "") },
		"disconnected": func(_ *testing.T, s *Session, _ *Stream) { s.End(io.EOF) },
	} {
		s := testSession()
		stream := mustAccept(t, s, 1)
		receive(t, s, 1, layout.KindFragmentFirst, []byte{9, 0, 0, 0, 0, 0, 0, 0, 'x'})
		if end(t, s, stream); stream.parts != nil {
			t.Errorf("%s: %d bytes are kept", name, len(stream.parts))
		}
	}
}

func TestMetadataIsCopied(t *testing.T) {
	s := testSession()
	metadata := []byte("name")
	stream, err := s.Open(0, metadata)
	if err != nil {
		t.Fatal(err)
	}
	metadata[0] = 'x'
	mustFlush(t, s, fmt.Sprintf("open 2 0000000000000000%x", "name"))
	payload := layout.Open{Metadata: []byte("other")}.Append(nil)
	receive(t, s, 1, layout.KindOpen, payload)
	payload[8] = 'x'
	accepted, err := s.Accept()
	if err != nil || string(stream.Metadata()) != "name" || string(accepted.Metadata()) != "other" {
		t.Errorf("%q, %q, %v", stream.Metadata(), accepted.Metadata(), err)
	}
}

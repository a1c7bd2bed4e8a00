// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/session"
)

// payload returns n bytes, a message of the tests; different seeds give different bytes.
func payload(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + seed)
	}
	return b
}

func mustFail(t *testing.T, err error, number layout.ErrorNumber, code uint32) {
	t.Helper()
	var e *session.Error
	if !errors.As(err, &e) || e.Number != number || e.Code != code {
		t.Errorf("%v, want %v with code %d", err, number, code)
	}
}

// within returns a context that ends when the test does, or after testDeadline if that is earlier.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testDeadline)
	t.Cleanup(cancel)
	return ctx
}

// Messages of every size arrive whole and in order, in both directions at once.
func TestMessagesArriveInOrder(t *testing.T) { overEach(t, messagesArriveInOrder) }

func messagesArriveInOrder(t *testing.T, sessions [2]*Session) {
	ctx := within(t)
	opened, accepted := mustOpen(t, sessions)
	lengths := []int{0, 1, 48, fakeDataMax, fakeDataMax + 1, fakeBlobMax, fakeBlobMax + 1, 100_000}
	const rounds = 30
	var group sync.WaitGroup
	for side, stream := range []*Stream{opened, accepted} {
		group.Go(func() {
			for i := range rounds * len(lengths) {
				if err := stream.Send(ctx, payload(lengths[i%len(lengths)], i+side)); err != nil {
					t.Errorf("sending message %d: %v", i, err)
					return
				}
			}
			stream.CloseWrite()
		})
		group.Go(func() {
			for i := range rounds * len(lengths) {
				m, err := stream.Recv(ctx)
				if err != nil || !bytes.Equal(m.Bytes, payload(lengths[i%len(lengths)], i+1-side)) {
					t.Errorf("message %d has %d bytes, %v", i, len(m.Bytes), err)
					return
				}
				m.Release()
			}
			if _, err := stream.Recv(ctx); err != io.EOF {
				t.Errorf("after the last message: %v", err)
			}
		})
	}
	group.Wait()
}

// Many streams are used at the same time, opened by both sides. Each carries its own bytes, and
// none is left in the end.
func TestManyStreamsAtOnce(t *testing.T) { overEach(t, manyStreamsAtOnce) }

func manyStreamsAtOnce(t *testing.T, sessions [2]*Session) {
	ctx := within(t)
	const streams = 199
	var group sync.WaitGroup
	for _, s := range sessions {
		group.Go(func() {
			for range streams {
				stream, err := s.Accept(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				group.Go(func() {
					defer stream.Close()
					if _, err := io.Copy(stream, stream); err != nil {
						t.Error(err)
					}
				})
			}
		})
		for i := range streams {
			group.Go(func() { echo(ctx, t, s, i) })
		}
	}
	group.Wait()
	for i, s := range sessions {
		if err := s.Drained(ctx); err != nil || s.StreamCount() != 0 {
			t.Errorf("side %d: %d streams are left, %v", i, s.StreamCount(), err)
		}
	}
}

// echo writes bytes on a new stream, and compares them with those that the peer sends back.
func echo(ctx context.Context, t *testing.T, s *Session, seed int) {
	stream, err := s.Open(ctx, 1, nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer stream.Close()
	want := payload(50*seed, seed)
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := stream.Write(want); err != nil && len(want) > 0 {
			t.Errorf("stream %d: %v", stream.Number(), err)
		}
		stream.CloseWrite()
	})
	got, err := io.ReadAll(stream)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("stream %d: %d bytes of %d, %v", stream.Number(), len(got), len(want), err)
	}
	group.Wait()
}

// A stream that nobody reads does not hold up the other streams (SPEC 11.4).
func TestUnreadStreamHoldsUpNoOther(t *testing.T) { overEach(t, unreadStreamHoldsUpNoOther) }

func unreadStreamHoldsUpNoOther(t *testing.T, sessions [2]*Session) {
	ctx := within(t)
	unread, _ := mustOpen(t, sessions)
	filled := make(chan error)
	waiting, cancel := context.WithCancel(ctx)
	go func() {
		for {
			if err := unread.Send(waiting, payload(500, 1)); err != nil {
				filled <- err
				return
			}
		}
	}()
	opened, accepted := mustOpen(t, sessions)
	for i := range 1000 {
		if err := opened.Send(ctx, payload(100, i)); err != nil {
			t.Fatal(err)
		}
		if m, err := accepted.Recv(ctx); err != nil || !bytes.Equal(m.Bytes, payload(100, i)) {
			t.Fatal(m, err)
		}
	}
	cancel()
	if err := <-filled; !errors.Is(err, context.Canceled) {
		t.Errorf("sending on the unread stream ended with %v", err)
	}
}

// SPEC 11.4: two applications each wait to send and take no messages meanwhile. Once both have
// taken the messages that came, neither waits any more for credit of the other.
func TestTwoWaitingSendersGetCredit(t *testing.T) { overEach(t, twoWaitingSendersGetCredit) }

func twoWaitingSendersGetCredit(t *testing.T, sessions [2]*Session) {
	ctx := within(t)
	opened, accepted := mustOpen(t, sessions)
	var group sync.WaitGroup
	for _, stream := range []*Stream{opened, accepted} {
		sent := make(chan struct{})
		group.Go(func() {
			defer close(sent)
			for range 4 { // the last ones wait for credit
				if err := stream.Send(ctx, payload(testWindow/2-100, 1)); err != nil {
					t.Error(err)
				}
			}
		})
		group.Go(func() {
			for i := range 4 {
				if i == 2 {
					<-sent // takes no more before its own messages are sent
				}
				m, err := stream.Recv(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				m.Release()
			}
		})
	}
	group.Wait()
}

func TestEndsOfStreams(t *testing.T) {
	for _, test := range []struct {
		name       string
		act        func(*Stream)
		recv, send func(*testing.T, error)
	}{
		{"CloseWrite", (*Stream).CloseWrite,
			func(t *testing.T, err error) {
				if err != io.EOF {
					t.Errorf("received with %v", err)
				}
			}, nil},
		{"Reset", func(s *Stream) { s.Reset(7) },
			func(t *testing.T, err error) { mustFail(t, err, layout.ErrorStreamReset, 7) }, nil},
		{"Stop", func(s *Stream) { s.Stop(8) }, nil,
			func(t *testing.T, err error) { mustFail(t, err, layout.ErrorStreamStopped, 8) }},
		{"Close", func(s *Stream) { _ = s.Close() },
			func(t *testing.T, err error) {
				if err != io.EOF {
					t.Errorf("received with %v", err)
				}
			},
			func(t *testing.T, err error) {
				mustFail(t, err, layout.ErrorStreamStopped, layout.ResetDropped)
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			overEach(t, func(t *testing.T, sessions [2]*Session) {
				ctx := within(t)
				opened, accepted := mustOpen(t, sessions)
				test.act(opened)
				if test.recv != nil {
					_, err := accepted.Recv(ctx)
					test.recv(t, err)
				}
				if test.send != nil {
					await(t, func() bool { return accepted.checkWrite(0) != nil })
					test.send(t, accepted.checkWrite(0))
					test.send(t, accepted.Send(ctx, nil))
				}
			})
		})
	}
}

// A sender gives a message in fragments up, because its context is canceled while the queue of
// records to the peer is full. The peer drops the message, and receives the next message of the
// stream.
func TestMessageGivenUpInFragments(t *testing.T) {
	sessions, conns := newPair(t)
	ctx := within(t)
	opened, accepted := mustOpen(t, sessions)
	// The test holds the lock of the peer's session. So the driver of that session reads nothing,
	// and the queue of records to it fills up.
	sessions[1].mu.Lock()
	sending, cancel := context.WithCancel(ctx)
	go func() {
		for isFull := false; !isFull && ctx.Err() == nil; runtime.Gosched() {
			conns[0].out.change(func() { isFull = conns[0].out.isFull })
		}
		cancel()
	}()
	err := opened.Send(sending, payload(10*fakeQueueMax, 1))
	sessions[1].mu.Unlock()
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("a message longer than all room was sent: %v", err)
	}
	if err := opened.Send(ctx, []byte("next")); err != nil {
		t.Fatal(err)
	}
	if m, err := accepted.Recv(ctx); err != nil || string(m.Bytes) != "next" {
		t.Errorf("%d bytes, %v", len(m.Bytes), err)
	}
}

func TestPingGoAwayAndDrain(t *testing.T) { overEach(t, pingGoAwayAndDrain) }

func pingGoAwayAndDrain(t *testing.T, sessions [2]*Session) {
	ctx := within(t)
	if err := sessions[0].Ping(ctx); err != nil {
		t.Fatal(err)
	}
	opened, accepted := mustOpen(t, sessions)
	sessions[1].GoAway(9)
	mustFail(t, sessions[0].PeerGoAway(ctx), layout.ErrorGoingAway, 9)
	_, err := sessions[0].Open(ctx, 0, nil)
	mustFail(t, err, layout.ErrorGoingAway, 9)
	if err := opened.Send(ctx, []byte("goes on")); err != nil {
		t.Fatal(err)
	}
	_, _ = opened.Close(), accepted.Close()
	for _, s := range sessions {
		if err := s.Drained(ctx); err != nil {
			t.Error(err)
		}
	}
}

// Open waits while this side has as many streams open as the peer allows.
func TestOpenWaitsForANumber(t *testing.T) { overEach(t, openWaitsForANumber) }

func openWaitsForANumber(t *testing.T, sessions [2]*Session) {
	ctx := within(t)
	var last [2]*Stream
	for range 8 {
		last[0], last[1] = mustOpen(t, sessions)
	}
	opened := make(chan error)
	go func() {
		_, err := sessions[0].Open(ctx, 0, nil)
		opened <- err
	}()
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := sessions[0].Open(canceled, 0, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a ninth stream: %v", err)
	}
	_, _ = last[0].Close(), last[1].Close()
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

func TestCloseOfSessionReachesThePeer(t *testing.T) { overEach(t, closeOfSessionReachesThePeer) }

func closeOfSessionReachesThePeer(t *testing.T, sessions [2]*Session) {
	ctx := within(t)
	opened, accepted := mustOpen(t, sessions)
	if err := opened.Send(ctx, []byte("before")); err != nil {
		t.Fatal(err)
	}
	sessions[0].Close(42, "maintenance")
	mustFail(t, opened.Send(ctx, nil), layout.ErrorSessionClosedHere, 42)
	if m, err := accepted.Recv(ctx); err != nil || string(m.Bytes) != "before" {
		t.Errorf("%q, %v", m.Bytes, err)
	}
	_, err := accepted.Recv(ctx)
	mustFail(t, err, layout.ErrorSessionClosedByThePeer, 42)
	_, err = sessions[1].Accept(ctx)
	mustFail(t, err, layout.ErrorSessionClosedByThePeer, 42)
	<-sessions[1].Done()
}

// When the peer hangs up without closing, a reader gets the error of a disconnection, and not that
// of a good end.
func TestDisconnectionIsNoEnd(t *testing.T) { overEach(t, disconnectionIsNoEnd) }

func disconnectionIsNoEnd(t *testing.T, sessions [2]*Session) {
	ctx := within(t)
	opened, accepted := mustOpen(t, sessions)
	if err := opened.Send(ctx, []byte("committed")); err != nil {
		t.Fatal(err)
	}
	hangUp(sessions[0])
	if m, err := accepted.Recv(ctx); err != nil || string(m.Bytes) != "committed" {
		t.Errorf("%q, %v", m.Bytes, err)
	}
	_, err := accepted.Read(make([]byte, 1))
	mustFail(t, err, layout.ErrorDisconnected, 0)
	mustFail(t, sessions[1].Ping(ctx), layout.ErrorDisconnected, 0)
}

// SPEC 11.6: Close has more records to write than the queue to the peer holds, and the peer reads
// nothing. Close gives up after the linger time.
func TestLingerTimeBoundsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := newFakes()
		s := Start(conns[0], session.New(session.Config{
			PeerMessageMax: 1 << 30, PeerWindow: 1 << 30, PeerStreamsMax: 1000,
		}, nil), 5*time.Second)
		for i := range 1000 {
			if _, err := s.Open(t.Context(), 0, payload(1000, i)); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		s.Close(1, "bye")
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("closing took %v", took)
		}
		if records := conns[1].in.records; records[len(records)-1].header.Kind != layout.KindCloseWrite {
			t.Error("the last record is not CLOSE_WRITE")
		}
	})
}

// A Read that waits fails once the deadline of the stream is set to a past time. Once the test has
// removed the deadline, a Read succeeds again.
func TestDeadlineInThePastWakesReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions, _ := newPair(t)
		opened, accepted := mustOpen(t, sessions)
		failed := make(chan error)
		go func() {
			_, err := accepted.Read(make([]byte, 1))
			failed <- err
		}()
		synctest.Wait() // the reader waits
		if err := accepted.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		if err := accepted.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		if _, err := opened.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if n, err := accepted.Read(make([]byte, 2)); n != 1 || err != nil {
			t.Error(n, err)
		}
	})
}

// Close makes a waiting Read and Write of the stream fail. It also releases a message that Read has
// read in part.
func TestCloseOfStreamWakesUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions, _ := newPair(t)
		opened, accepted := mustOpen(t, sessions)
		if _, err := opened.Write(payload(fakeBlobMax, 1)); err != nil {
			t.Fatal(err)
		}
		if _, err := accepted.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		failed := make(chan error)
		go func() {
			_, err := opened.Read(make([]byte, 1))
			failed <- err
		}()
		go func() {
			_, err := opened.Write(payload(10*testWindow, 1))
			failed <- err
		}()
		synctest.Wait()
		_, _ = opened.Close(), accepted.Close()
		for range 2 {
			if err := <-failed; !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
		if _, err := accepted.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read after Close: %v", err)
		}
	})
}

// 2,000 streams are opened and closed one after another, and none is left in the end. A test of
// package session does this with a million streams, which would take too long with real
// connections.
func TestStreamsOneAfterAnotherLeaveNothing(t *testing.T) {
	overEach(t, streamsOneAfterAnotherLeaveNothing)
}

func streamsOneAfterAnotherLeaveNothing(t *testing.T, sessions [2]*Session) {
	ctx := within(t)
	for i := range 2000 {
		opened, accepted := mustOpen(t, sessions)
		if err := opened.Send(ctx, fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
		if m, err := accepted.Recv(ctx); err != nil || string(m.Bytes) != fmt.Sprint(i) {
			t.Fatal(m, err)
		}
		_, _ = opened.Close(), accepted.Close()
	}
	for _, s := range sessions {
		if err := s.Drained(ctx); err != nil {
			t.Error(err)
		}
	}
}

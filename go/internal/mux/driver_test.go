// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"partywall.test/go/internal/clock"
	"partywall.test/go/internal/layout"
)

// inBubble runs a test with two sessions over a fake connection, and both sides of a stream, in a
// bubble of package synctest. There, time passes only while all goroutines sleep.
func inBubble(t *testing.T, test func(t *testing.T, sessions [2]*Session, own, peers *Stream)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sessions, _ := newPair(t)
		own, peers := mustOpen(t, sessions)
		test(t, sessions, own, peers)
	})
}

// begin runs a call in a goroutine, and returns once every goroutine of the test's bubble (package
// synctest) sleeps. The error of the call is sent on the returned channel.
func begin(call func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- call() }()
	synctest.Wait()
	return result
}

func read(s *Stream) func() error {
	return func() error {
		_, err := s.Read(make([]byte, 1))
		return err
	}
}

// mustWrite writes a byte to the stream, and waits until all goroutines of the test's bubble
// (package synctest) sleep.
func mustWrite(t *testing.T, s *Stream) {
	t.Helper()
	if _, err := s.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// elapse lets the time d pass in the test's bubble (package synctest), in which timers fire in
// their order. It takes no real time.
func elapse(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// isDriven reports whether a goroutine drives the session, and whether that goroutine is an urgent
// waiter.
func isDriven(s *Session) (is, isUrgent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.role.state == roleDriven, s.role.isUrgent
}

// Rules H3 and H5 of decision 0038: no goroutine waits on the session, and yet this side answers
// the peer's record PING.
func TestSessionIsKeptWhileNobodyWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, sessions [2]*Session, own, peers *Stream) {
		for range 3 {
			begun := begin(read(own))
			mustWrite(t, peers)
			if err := <-begun; err != nil {
				t.Fatal(err)
			}
			if err := sessions[1].Ping(within(t)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Rule H4 of decision 0038: the driver of the session leaves, and its follower receives its own
// message without a delay.
func TestRoleGoesToFollower(t *testing.T) {
	inBubble(t, func(t *testing.T, sessions [2]*Session, own, peers *Stream) {
		second, peersSecond := mustOpen(t, sessions)
		driver, follower := begin(read(own)), begin(read(second))
		mustWrite(t, peers)
		if err := <-driver; err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		mustWrite(t, peersSecond)
		select {
		case err := <-follower:
			if err != nil {
				t.Error(err)
			}
		case <-within(t).Done():
			t.Fatal("the follower receives nothing")
		}
		if took := time.Since(before); took != 0 {
			t.Errorf("the follower received its message after %v", took)
		}
	})
}

// Rule H2 of decision 0038: a goroutine that waits to read a stream drives the session. Another
// goroutine stops the receiving of this stream, which the peer answers with no record. The reader
// must return.
func TestStopWakesDriver(t *testing.T) {
	inBubble(t, func(t *testing.T, sessions [2]*Session, own, peers *Stream) {
		driver := begin(read(own))
		own.Stop(1)
		mustFail(t, <-driver, layout.ErrorStreamStoppedHere, 0)
	})
}

// Rule H2 of decision 0038: the deadline of the driver passes, after it was moved while the driver
// waited. The driver must return.
func TestDeadlineWakesDriver(t *testing.T) {
	inBubble(t, func(t *testing.T, sessions [2]*Session, own, peers *Stream) {
		driver := begin(read(own))
		if err := own.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := <-driver; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
}

// A deadline that is moved to an earlier time, then to a later one, passes at its last time.
func TestDeadlineMovesEarlier(t *testing.T) {
	inBubble(t, func(t *testing.T, sessions [2]*Session, own, peers *Stream) {
		for _, last := range []time.Duration{time.Minute, 3 * time.Hour} {
			start := time.Now()
			driver := begin(read(own))
			for _, rest := range []time.Duration{time.Hour, last} {
				if err := own.SetReadDeadline(start.Add(rest)); err != nil {
					t.Fatal(err)
				}
			}
			err := <-driver
			if took := time.Since(start); !errors.Is(err, os.ErrDeadlineExceeded) || took != last {
				t.Errorf("%v after %v", err, took)
			}
			_ = own.SetReadDeadline(time.Time{})
		}
	})
}

// Rule H2 of decision 0038: the context of the driver ends, and the driver must return.
func TestContextWakesDriver(t *testing.T) {
	inBubble(t, func(t *testing.T, sessions [2]*Session, own, peers *Stream) {
		ctx, cancel := context.WithCancel(t.Context())
		driver := begin(func() error {
			_, err := own.Recv(ctx)
			return err
		})
		cancel()
		if err := <-driver; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// Rule H6 of decision 0038: the driver notices the end of the connection, and the connection is
// closed.
func TestEndIsFoundByDriver(t *testing.T) {
	inBubble(t, func(t *testing.T, sessions [2]*Session, own, peers *Stream) {
		driver := begin(read(own))
		go hangUp(sessions[1])
		mustFail(t, <-driver, layout.ErrorDisconnected, 0)
		<-sessions[0].Done()
	})
}

// Rule H7 of decision 0038: a goroutine that waits for a message takes the role of the driver from
// the supervisor, and from a goroutine in Accept.
func TestUrgentWaiterDrives(t *testing.T) {
	inBubble(t, func(t *testing.T, sessions [2]*Session, own, peers *Stream) {
		for _, isKept := range []bool{true, false} {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var acceptor <-chan error
			if !isKept {
				acceptor = begin(func() error {
					_, err := sessions[0].Accept(ctx)
					return err
				})
			}
			elapse(5 * clock.TickTime)
			if is, isUrgent := isDriven(sessions[0]); !is || isUrgent {
				t.Fatalf("driven: %v, by an urgent waiter: %v", is, isUrgent)
			}
			reader := begin(read(own))
			if is, isUrgent := isDriven(sessions[0]); !is || !isUrgent {
				t.Fatalf("driven: %v, by an urgent waiter: %v", is, isUrgent)
			}
			mustWrite(t, peers)
			if err := <-reader; err != nil {
				t.Error(err)
			}
			cancel()
			if acceptor != nil {
				if err := <-acceptor; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		}
	})
}

// Rule H8 of decision 0038: the role of the driver is offered to a goroutine whose context has just
// ended. Yet this side answers the peer's record PING. The test itself takes the role as a driver
// does.
func TestHeirThatReturnsLeaves(t *testing.T) {
	// If the goroutine sees the offer before the end of its context, it drives, which is also
	// correct. So one repetition may not test the rule, and several are made.
	for range 20 {
		inBubble(t, func(t *testing.T, sessions [2]*Session, own, peers *Stream) {
			s := sessions[0]
			s.mu.Lock()
			isDriver := s.role.take(urgent)
			s.mu.Unlock()
			if !isDriver {
				t.Fatal("the role is not free")
			}
			elapse(5 * clock.TickTime) // no tick is left
			ctx, cancel := context.WithCancel(t.Context())
			follower := begin(func() error {
				_, err := own.Recv(ctx)
				return err
			})
			s.mu.Lock()
			cancel()
			for range 100 {
				runtime.Gosched() // the follower wakes up, and waits for the lock
			}
			s.leave()
			s.mu.Unlock()
			if err := <-follower; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if err := sessions[1].Ping(within(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

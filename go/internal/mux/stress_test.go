// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Many goroutines write, read, close and reset the streams of one session at random, while
// deadlines pass and contexts end. If a waiting call is never woken, the test fails.
func TestNoWakeUpIsLostAtRandom(t *testing.T) { overEach(t, noWakeUpIsLostAtRandom) }

func noWakeUpIsLostAtRandom(t *testing.T, sessions [2]*Session) {
	ctx := within(t)
	var group sync.WaitGroup
	for side, s := range sessions {
		for i := range 4 {
			seed := uint64(side*100 + i)
			group.Go(func() { abuse(ctx, t, s, true, rand.New(rand.NewPCG(seed, 1))) })
			group.Go(func() { abuse(ctx, t, s, false, rand.New(rand.NewPCG(seed, 2))) })
		}
		group.Go(func() {
			for range 30 {
				if err := s.Ping(ctx); err != nil {
					t.Errorf("ping: %v", err)
				}
			}
		})
	}
	group.Wait()
	for _, s := range sessions {
		if err := s.Drained(ctx); err != nil {
			t.Errorf("streams are left: %v", err)
		}
	}
}

// abuse opens or accepts streams one after another, and uses each of them in several goroutines at
// once.
func abuse(ctx context.Context, t *testing.T, s *Session, opens bool, random *rand.Rand) {
	for range 3 {
		var stream *Stream
		var err error
		if opens {
			stream, err = s.Open(ctx, 0, nil)
		} else {
			stream, err = s.Accept(ctx)
		}
		if err != nil {
			t.Errorf("a stream: %v", err)
			return
		}
		misuse(ctx, stream, rand.New(rand.NewPCG(random.Uint64(), 3)))
	}
}

// misuse reads and writes a stream in two goroutines, while a third one changes its deadlines,
// until the stream is closed.
func misuse(ctx context.Context, stream *Stream, random *rand.Rand) {
	var group sync.WaitGroup
	sizes := []int{0, 1, 500, 5000, 20_000}
	size, rounds, end := sizes[random.IntN(len(sizes))], 1+random.IntN(8), random.IntN(4)
	group.Go(func() {
		for i := range rounds {
			_, _ = stream.Write(payload(size, i))
		}
	})
	group.Go(func() {
		b := make([]byte, 700)
		for {
			if _, err := stream.Read(b); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
			if ctx.Err() != nil {
				return
			}
			// After a deadline each Read fails at once. Without this call, on one processor the
			// readers would run for a whole time slice each before the deadline is moved.
			runtime.Gosched()
		}
	})
	for range rounds {
		limit := time.Now().Add(time.Duration(random.IntN(400)-100) * time.Microsecond)
		_ = stream.SetDeadline(limit)
		short, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(200))*time.Microsecond)
		_ = stream.session.PeerGoAway(short)
		cancel()
	}
	_ = stream.SetDeadline(time.Time{})
	switch end {
	case 0:
		stream.Reset(1)
	case 1:
		stream.Stop(1)
	case 2:
		stream.CloseWrite()
	}
	_ = stream.Close()
	group.Wait()
}

// Sessions leave no goroutine and no descriptor behind, whichever goroutine drives a session when
// it is closed.
func TestClosedSessionsLeaveNothing(t *testing.T) {
	for _, transport := range transports {
		t.Run(transport.name, func(t *testing.T) {
			var before int
			for i := range 30 {
				if i == 5 { // the runtime has its own descriptors by now
					before = descriptors(t)
				}
				sessions := transport.connect(t)
				opened, accepted := mustOpen(t, sessions)
				var group sync.WaitGroup
				group.Go(func() { _, _ = accepted.Read(make([]byte, 1)) })
				group.Go(func() { _, _ = opened.Read(make([]byte, 1)) })
				group.Go(func() { _ = sessions[i%2].PeerGoAway(t.Context()) })
				if i%3 == 0 {
					await(t, func() bool { return isKept(sessions[0]) })
				}
				sessions[i%2].Close(0, "")
				sessions[1-i%2].Close(0, "")
				group.Wait()
			}
			await(t, func() bool { return !isAnyInside("mux.(*Session).") })
			if raceEnabled {
				return
			}
			await(t, func() bool { return descriptors(t) <= before })
		})
	}
}

func isKept(s *Session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.role.state == roleDriven
}

// isAnyInside reports whether any goroutine of this process is within a function of this name.
func isAnyInside(name string) bool {
	stacks := make([]byte, 1<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), name)
}

// descriptors returns the number of open descriptors of this process, or 0 where it is unknown.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

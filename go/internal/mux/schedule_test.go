// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/session"
)

// A schedule makes calls on two sessions over a fake connection, in an order that its seed decides.
// After each call it waits until every goroutine sleeps, and notes which calls have returned, and
// with which results.
type schedule struct {
	random   *rand.Rand
	sessions [2]*Session
	notes    []string

	mu       sync.Mutex // guards what follows
	streams  []*Stream
	isAsking [2]bool  // a call of Accept or Open waits at the side; a second one would race with it
	returned []string // results of the calls that returned since the last note
}

const (
	scheduleSteps = 80
	// stepTime is the time of one step of a schedule. It is longer than two ticks, so that by its
	// end the supervisor drives if nobody waits.
	stepTime = 5 * time.Millisecond
)

// runSchedule runs the schedule of a seed, and returns the notes of which calls have returned at
// which step, with their results.
func runSchedule(t *testing.T, start starter, seed uint64) (notes []string) {
	synctest.Test(t, func(t *testing.T) {
		s := &schedule{random: rand.New(rand.NewPCG(seed, 1))}
		s.sessions = startBy(t, start, newFakes())
		notes = s.run()
	})
	return notes
}

// run performs all steps of the schedule, and then closes the sessions, so that every call returns.
func (s *schedule) run() []string {
	for step := range scheduleSteps {
		s.act(step)
		s.note(step)
	}
	for i, session := range s.sessions {
		session.Close(uint32(i), "over")
		s.note(scheduleSteps + i)
	}
	return s.notes
}

// note waits until every goroutine sleeps, and notes which calls have returned since the last step.
func (s *schedule) note(step int) {
	elapse(stepTime)
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.returned)
	s.notes = append(s.notes, fmt.Sprint(step, s.returned, s.sessions[0].StreamCount(),
		s.sessions[1].StreamCount()))
	s.returned = nil
}

// call starts a call that may wait. When the call returns, its result is kept until the schedule
// next notes which calls have returned.
func (s *schedule) call(step int, call func(context.Context) string) {
	limit := stepTime*time.Duration(1+s.random.IntN(6)) + stepTime/2
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		result := call(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.returned = append(s.returned, fmt.Sprintf("%d: %s", step, result))
	}()
}

func (s *schedule) act(step int) {
	side, kind := s.random.IntN(2), s.random.IntN(20)
	own := s.sessions[side]
	s.mu.Lock()
	streams := s.streams
	s.mu.Unlock()
	switch {
	case len(streams) == 0 || kind < 3:
		s.ask(step, side, kind%2 == 0 || len(streams) == 0)
	case kind < 4:
		s.call(step, func(ctx context.Context) string { return text(own.Ping(ctx)) })
	case kind < 5:
		s.call(step, func(ctx context.Context) string { return text(own.Drained(ctx)) })
	default:
		s.actOn(step, streams[s.random.IntN(len(streams))], kind)
	}
}

func (s *schedule) ask(step, side int, opens bool) {
	s.mu.Lock()
	isAsking := s.isAsking[side]
	s.isAsking[side] = true
	s.mu.Unlock()
	if isAsking {
		return
	}
	own := s.sessions[side]
	s.call(step, func(ctx context.Context) string {
		var stream *Stream
		var err error
		if opens {
			stream, err = own.Open(ctx, 0, nil)
		} else {
			stream, err = own.Accept(ctx)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.isAsking[side] = false
		if err == nil {
			s.streams = append(s.streams, stream)
		}
		return text(err)
	})
}

// actOn uses a stream.
func (s *schedule) actOn(step int, stream *Stream, kind int) {
	switch {
	case kind < 10:
		length := []int{0, 10, 1000, 3000, 9000}[s.random.IntN(5)]
		s.call(step, func(ctx context.Context) string {
			return text(stream.Send(ctx, payload(length, step)))
		})
	case kind < 14:
		s.call(step, func(ctx context.Context) string {
			m, err := stream.Recv(ctx)
			defer m.Release()
			return fmt.Sprint(len(m.Bytes), text(err))
		})
	case kind < 15:
		s.call(step, func(context.Context) string {
			b := make([]byte, 500)
			n, err := stream.Read(b)
			return fmt.Sprint(n, text(err))
		})
	case kind < 17:
		offset := stepTime*time.Duration(s.random.IntN(4)-1) + stepTime/2
		_ = stream.SetDeadline(time.Now().Add(offset))
	case kind < 18:
		_ = stream.SetDeadline(time.Time{})
	default:
		s.endOf(stream)
	}
}

// endOf ends a stream in one of four ways, chosen at random: Close, CloseWrite, a reset, or the end
// of its receiving.
func (s *schedule) endOf(stream *Stream) {
	switch s.random.IntN(4) {
	case 0:
		stream.CloseWrite()
	case 1:
		stream.Reset(7)
	case 2:
		stream.Stop(8)
	default:
		_ = stream.Close()
	}
}

// text returns the name of an error, without the parts that may differ between two runs of the same
// schedule.
func text(err error) string {
	var e *session.Error
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &e) && e.Number == layout.ErrorGoingAway:
		// The peer closes the session with two records. Open may be called between the two, and
		// then has another error than after both, so both errors get the same text.
		return text(&session.Error{Number: layout.ErrorSessionClosedByThePeer, Code: e.Code})
	case errors.As(err, &e):
		return fmt.Sprintf("error %d, code %d", e.Number, e.Code)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "too late" // the earlier of the two limits
	case errors.Is(err, net.ErrClosed):
		return "closed"
	case err == io.EOF:
		return "end"
	}
	return err.Error()
}

// With the same schedule, each call returns at the same step and with the same result, whether the
// waiting goroutines drive the session or the supervisor alone does.
func TestWaitersDriveAsTheReferenceDoes(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() || raceEnabled {
		seeds = 60
	}
	for seed := range seeds {
		want := runSchedule(t, startReference, seed)
		got := runSchedule(t, Start, seed)
		for step := range want {
			if got[step] != want[step] {
				t.Fatalf("seed %d: the waiters note\n%s\nand the reference\n%s", seed, got[step], want[step])
			}
		}
	}
}

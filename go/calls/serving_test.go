// SPDX-License-Identifier: MIT OR Apache-2.0

package calls

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Calls that come, end and are given up in a random order have the outcome that a plain model
// predicts. The model is two lists: the calls that run, and the calls that wait.
func TestLimitsDecideWhatBecomesOfCalls(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(22, seed))
		limits := Config{RunningMax: 1 + random.IntN(3), WaitingMax: random.IntN(4)}
		s := newServing[uint64](limits)
		var running, waiting []uint64
		last := uint64(0)
		for range 300 {
			switch random.IntN(4) {
			case 0, 1:
				last += 1 + random.Uint64N(3)
				want := arrivalRefused
				switch {
				case len(running) < limits.RunningMax:
					want, running = arrivalRuns, append(running, last)
				case len(waiting) < limits.WaitingMax:
					want, waiting = arrivalWaits, append(waiting, last)
				}
				if found, err := s.arrive(last, last); found != want || err != nil {
					t.Fatalf("call %d: %d, %v, want %d", last, found, err, want)
				}
				if _, err := s.arrive(last, last); !isViolation(err) {
					t.Fatalf("call %d arrives twice: %v", last, err)
				}
			case 2:
				id := pick(random, last)
				call, isRunning, wasWaiting := s.find(id)
				if isRunning != slices.Contains(running, id) ||
					wasWaiting != slices.Contains(waiting, id) || (isRunning || wasWaiting) && call != id {
					t.Fatalf("call %d is %d, %v, %v", id, call, isRunning, wasWaiting)
				}
				waiting = slices.DeleteFunc(waiting, func(w uint64) bool { return w == id })
			default:
				if len(running) == 0 {
					continue
				}
				id := running[random.IntN(len(running))]
				running = slices.DeleteFunc(running, func(r uint64) bool { return r == id })
				next, isThere := s.finish(id)
				if isThere != (len(waiting) > 0) || isThere && next != waiting[0] {
					t.Fatalf("after call %d runs %d, %v; %v wait", id, next, isThere, waiting)
				}
				if isThere {
					running, waiting = append(running, next), waiting[1:]
				}
			}
			if len(s.running) != len(running) || len(s.waiting) != len(waiting) {
				t.Fatalf("%d run and %d wait, want %d and %d",
					len(s.running), len(s.waiting), len(running), len(waiting))
			}
		}
		if drained := s.drain(); len(drained) != len(waiting) || len(s.waiting) != 0 {
			t.Fatalf("%v are drained, want %v", drained, waiting)
		}
	}
}

// pick returns a random id: that of the last call so far, or one of the eleven before it.
func pick(random *rand.Rand, last uint64) uint64 {
	return last - min(last, random.Uint64N(12))
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package calls

import (
	"cmp"
	"slices"

	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/layout"
)

// serving has the calls that a server has received: it runs some, keeps some waiting, and refuses
// the others (CALLS 4).
//
//	arrive ─┬─ fewer than runningMax run ──▶ running ── finish ──▶ removed; the next one runs
//	        ├─ fewer than waitingMax wait ─▶ waiting ──▶ running
//	        └─ else ───────────────────────▶ refused
//
// The ids of calls rise. No call waits while fewer than runningMax handlers run. A running call
// that was given up counts as running until its handler has returned.
type serving[C any] struct {
	runningMax, waitingMax int
	last                   uint64 // the id of the call that arrived last
	running                map[uint64]C
	waiting                []waitingCall[C] // by rising id
}

type waitingCall[C any] struct {
	id   uint64
	call C
}

// arrival says what the server does with a call that has come: run it, keep it waiting, or refuse
// it.
type arrival int

const (
	arrivalRuns arrival = iota
	arrivalWaits
	arrivalRefused
)

func newServing[C any](config Config) serving[C] {
	return serving[C]{
		runningMax: config.RunningMax, waitingMax: config.WaitingMax, running: map[uint64]C{},
	}
}

// arrive adds a call that has come from the client. The error says that the client broke the rule
// that ids rise.
func (s *serving[C]) arrive(id uint64, call C) (arrival, error) {
	if id <= s.last && !fault.Is("id_believed") {
		return 0, violation(layout.ErrorCallID, "call %d came after call %d: ids must rise",
			id, s.last)
	}
	s.last = id
	switch {
	case len(s.running) < s.runningMax:
		s.running[id] = call
		return arrivalRuns, nil
	case len(s.waiting) < s.waitingMax || fault.Is("never_busy"):
		s.waiting = append(s.waiting, waitingCall[C]{id, call})
		return arrivalWaits, nil
	}
	return arrivalRefused, nil
}

// find returns the call with the id. It removes the call if the call waits for a handler, and keeps
// it if its handler runs.
func (s *serving[C]) find(id uint64) (call C, isRunning, wasWaiting bool) {
	if call, isRunning = s.running[id]; isRunning {
		return call, true, false
	}
	at, isThere := slices.BinarySearchFunc(s.waiting, id, func(w waitingCall[C], id uint64) int {
		return cmp.Compare(w.id, id)
	})
	if isThere {
		call = s.waiting[at].call
		s.waiting = slices.Delete(s.waiting, at, at+1)
	}
	return call, false, isThere
}

// finish removes a call whose handler has returned. If a call waits for a handler, finish returns
// the next one, which counts as running from then on.
func (s *serving[C]) finish(id uint64) (next C, isThere bool) {
	delete(s.running, id)
	if len(s.waiting) == 0 {
		return next, false
	}
	first := s.waiting[0]
	s.waiting = slices.Delete(s.waiting, 0, 1)
	s.running[first.id] = first.call
	return first.call, true
}

func (s *serving[C]) drain() []waitingCall[C] {
	drained := s.waiting
	s.waiting = nil
	return drained
}

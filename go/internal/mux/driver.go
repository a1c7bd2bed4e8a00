// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import "partywall.test/go/internal/fault"

// The urgency of a wait: an urgent one is for a message, for room or for an answer, and may poll. A
// background one is for something that may never come, such as a stream of the peer.
const (
	background = false
	urgent     = true
)

// wait waits for an event. It drives the session meanwhile, or follows another driver. The lock is
// held before and after, and not while the goroutine sleeps.
func (s *Session) wait(l limit, event <-chan struct{}, isUrgent bool) error {
	for {
		var isDone bool
		var err error
		if s.role.take(isUrgent) {
			isDone, err = s.drive(l, event, isUrgent)
		} else {
			isDone, err = s.follow(l, event, isUrgent)
		}
		if isDone {
			return err
		}
	}
}

// drive reads records until the event has come, or the limit is reached. It returns false if the
// role has gone to another goroutine or is over. The caller has the role, and the lock.
func (s *Session) drive(l limit, event <-chan struct{}, isUrgent bool) (bool, error) {
	if stop := l.wakes(s.wakes); stop != nil {
		defer stop()
	}
	for isWoken := true; ; {
		if hasCome(event) {
			if !isUrgent {
				s.role.reclaimed = 0
			}
			s.leave()
			return true, nil
		}
		if isWoken {
			if err := l.check(); err != nil {
				s.leave()
				return true, err
			}
		}
		// H7: an urgent follower drives rather than this goroutine.
		if !isUrgent && s.role.urgent.first != nil && !s.role.isPermanent && !fault.Is("role_kept") {
			s.leave()
			return false, nil
		}
		if s.readNext(isUrgent) {
			s.finish()
			return false, nil
		}
		isWoken = s.isWoken.Load()
		if isWoken {
			s.isWoken.Store(false)
		}
	}
}

// follow waits while another goroutine drives. It returns false if the role was offered.
func (s *Session) follow(l limit, event <-chan struct{}, isUrgent bool) (bool, error) {
	f := s.role.follow(isUrgent)
	if isUrgent && s.role.state == roleDriven && !s.role.isUrgent && !s.role.isPermanent {
		s.role.reclaimed++
		if !fault.Is("background_asleep") {
			s.awaken() // H7
		}
	}
	s.mu.Unlock()
	isOffered, err := l.wait(event, f.offered)
	s.mu.Lock()
	if s.role.unfollow(f) {
		s.role.state, s.role.heir = roleFree, nil
		if !isOffered && !fault.Is("heir_leaves_nothing") {
			s.leave() // H8
		}
	}
	return !isOffered, err
}

// leave gives the role up: to a follower, or to whoever waits next. The lock is held.
func (s *Session) leave() {
	switch {
	case s.isInterrupted:
		s.finish()
	case fault.Is("no_heir") || !s.role.offer(s.role.reclaimed < reclaimedMax):
		s.role.state = roleFree
		s.role.startTick()
	}
}

// onTick gives a role that stayed free to a follower, or to the supervisor (H5).
func (s *Session) onTick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.role.isTicking = false
	switch {
	case s.role.state != roleFree:
	case s.role.takes != s.role.seen:
		s.role.startTick()
	default:
		s.role.reclaimed = 0
		if !s.role.offer(true) && s.role.take(background) && !fault.Is("no_supervisor") {
			go s.keep()
		}
	}
}

// keep drives the session until an urgent waiter takes the role, or the session ends.
func (s *Session) keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.drive(limit{}, nil, background)
}

// awaken lets the driver look at its limit and its event, now or after the next record. Any
// goroutine may call it, even after the end of the session.
func (s *Session) awaken() {
	s.isWoken.Store(true)
	s.conn.Wake()
}

// wakeDriver lets the driver look at its event, which the caller has changed (H2). The lock is
// held.
func (s *Session) wakeDriver() {
	if s.role.state == roleDriven && !s.role.isApplying && !fault.Is("driver_asleep") {
		s.awaken()
	}
}

// readNext reads and applies one record of the peer, or is woken. It returns whether no record
// follows. The lock is held before and after.
func (s *Session) readNext(polls bool) (isLast bool) {
	s.mu.Unlock()
	header, payload, message, err := s.conn.ReadRecord(polls)
	s.mu.Lock()
	if err == errWoken {
		return false
	}
	s.role.isApplying = true
	defer func() { s.role.isApplying = false }()
	if err != nil {
		s.end(err)
		return true
	}
	wasOver := s.state.Err() != nil
	event, err := s.state.Receive(header, payload, message)
	s.flush()
	s.wake(event)
	if wasOver || s.state.Err() == nil {
		return false
	}
	// The peer has closed the session or broken a rule, so nothing more is read (SPEC 11.6).
	s.wakeAll()
	if err == nil {
		s.closeWrite()
	}
	return true
}

// finish ends the role, and closes the connection in a goroutine (H6). The lock is held.
func (s *Session) finish() {
	if !s.role.end() || fault.Is("end_ignored") {
		return
	}
	s.isLeaving = true
	go func() {
		defer close(s.ended)
		s.conn.Interrupt()
		s.waits.Wait()
		s.conn.Close()
	}()
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import "partywall.test/go/internal/fault"

// The urgency of a wait. An urgent wait is for a message, for room or for an answer, and may poll.
// A background wait is for something that may never come, such as a stream that the peer opens.
const (
	background = false
	urgent     = true
)

// wait waits for an event, until the limit l: a context is done, or a deadline has passed.
// Meanwhile it drives the session, or follows the goroutine that does. The caller holds the
// session's lock, which is released while the goroutine sleeps.
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

// drive reads the records of the session until the event has come, or the limit l is reached: a
// context is done, or a deadline has passed. It returns false if another goroutine should drive
// now, or the session has ended. The caller has the role of the driver, and holds the session's
// lock.
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
		// Rule H7 of decision 0038: an urgent follower drives rather than this goroutine, which
		// waits in the background.
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

// follow waits for an event while another goroutine drives the session. It returns false if the
// role of the driver was offered to this goroutine.
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

// leave gives up the role of the driver: it offers the role to a follower, or else leaves it to the
// next goroutine that waits. The caller holds the session's lock.
func (s *Session) leave() {
	switch {
	case s.isInterrupted:
		s.finish()
	case fault.Is("no_heir") || !s.role.offer(s.role.reclaimed < reclaimedMax):
		s.role.state = roleFree
		s.role.startTick()
	}
}

// onTick is called when a session may have been without a driver for 1 ms. If so, it offers the
// role to a follower, or starts the supervisor (rule H5 of decision 0038).
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

// keep is the supervisor: it drives the session for as long as no waiting goroutine does. It ends
// when an urgent waiter takes the role of the driver, or the session ends.
func (s *Session) keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.drive(limit{}, nil, background)
}

// awaken ends the driver's wait for a record, so that the driver checks whether its event has come,
// its context is done or its deadline has passed. If the driver does not wait now, its next wait
// ends. Any goroutine may call it, even after the end of the session.
func (s *Session) awaken() {
	s.isWoken.Store(true)
	s.conn.Wake()
}

// wakeDriver makes the driver check the event that it waits for, because the caller may have
// brought it about (rule H2 of decision 0038). The caller holds the session's lock.
func (s *Session) wakeDriver() {
	if s.role.state == roleDriven && !s.role.isApplying && !fault.Is("driver_asleep") {
		s.awaken()
	}
}

// readNext waits for the next record of the peer, and applies it to the session. It returns true if
// no record can follow. A call of awaken, by which another goroutine wakes the driver, ends this
// wait. The caller holds the session's lock, which is released during the wait.
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
	// The peer has closed the session or broken a rule, so no more of its records are read (SPEC
	// 11.6).
	s.wakeAll()
	if err == nil {
		s.closeWrite()
	}
	return true
}

// finish ends the role of the driver for ever, and closes the connection in a goroutine (rule H6 of
// decision 0038). The caller holds the session's lock.
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

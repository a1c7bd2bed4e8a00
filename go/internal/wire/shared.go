// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"sync"
	"sync/atomic"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/sys"
	"partywall.test/go/internal/wait"
)

// sharedMemory is the state that the sender and the receiver of a connection over shared memory
// have in common.
//
//	own region ──▶ the peer reads     control socket ◀─▶ doorbell bytes, descriptors of segments
//	peer region ◀── the peer writes   pidfd, hang-up ──▶ isGone
type sharedMemory struct {
	socket    *controlSocket
	own       *ownRegion
	peer      *peerRegion
	isTrusted bool
	isLocal   bool // the peer is in this process
	pid       int  // of the peer's process, or 0 if it is unknown
	localEnd  atomic.Pointer[localEnd]

	// records and room are the doorbells on which this side sleeps, for records and for room. The
	// peer's doorbells are nil if the doorbells are bytes on the control socket.
	records, room           *doorbell
	peersRecords, peersRoom *sys.Eventfd

	condition

	watchers sync.WaitGroup
	process  *processWatch // nil without a verified pidfd
}

// newBudget returns the budget of a wait for the peer: for how long the wait polls before it
// sleeps, which is limit at most.
func (m *sharedMemory) newBudget(limit time.Duration) wait.Budget {
	if m.isLocal {
		return wait.NewLocalBudget(limit)
	}
	return wait.NewBudget(limit, m.pid)
}

// beginSleep counts a sleep that begins on a doorbell of this side. A peer in this process runs on
// the processors of this one, which do not become idle between the two.
func (m *sharedMemory) beginSleep(d *doorbell) {
	if !m.isLocal {
		d.sleeps.Begin()
	}
}

// start starts the two goroutines of a connection: one reads the control socket, and one waits
// until the peer's process has ended, if its pidfd is known.
func (m *sharedMemory) start(process *sys.Pidfd) {
	m.own.setState(layout.IdentityStateOpen, m.isTrusted)
	m.register()
	if m.peersRecords == nil { // else a byte is no doorbell
		m.socket.notified = m.wakeAll
	}
	m.watchers.Go(func() {
		if err := m.socket.watch(); err != nil {
			m.fail(err)
		}
		m.setGone()
	})
	if process == nil {
		return
	}
	m.process = newProcessWatch(process)
	m.watchers.Go(func() {
		if m.process.wait() {
			m.setGone()
		}
	})
}

func (m *sharedMemory) setGone() {
	m.isGone.Store(true)
	m.wakeAll()
}

// wakeAll wakes the goroutines that wait for records or for room, so that they check whether the
// connection has ended.
func (m *sharedMemory) wakeAll() {
	m.records.wake()
	m.room.wake()
}

// fail ends the connection because of err, a violation or a system error, and closes the control
// socket. It returns the first error that has ended the connection.
func (m *sharedMemory) fail(err error) error {
	first, isFirst := m.breakBy(err)
	if isFirst {
		m.own.setBroken(Number(err))
		m.socket.hangUp()
		m.wakeAll()
	}
	return first
}

// notifyRecords wakes the peer's goroutine that sleeps because there are no records.
func (m *sharedMemory) notifyRecords() {
	if end := m.local(); end != nil {
		end.records.interrupt()
		return
	}
	m.notify(m.peersRecords)
}

// notifyRoom wakes the peer's goroutine that sleeps because there is no room.
func (m *sharedMemory) notifyRoom() {
	if end := m.local(); end != nil {
		end.room.interrupt()
		return
	}
	m.notify(m.peersRoom)
}

func (m *sharedMemory) notify(eventfd *sys.Eventfd) {
	if eventfd == nil {
		m.socket.notify()
		return
	}
	// The error is ignored: it means that the notification is lost, which harms only the peer,
	// whose eventfd is faulty.
	_ = eventfd.Notify()
}

// interrupt makes calls on the connection return [ErrClosed] instead of waiting: those that wait
// now, and all later ones.
func (m *sharedMemory) interrupt() {
	m.isClosed.Store(true)
	m.wakeAll()
}

// close closes the connection's sockets and doorbells, and ends its use of the shared memory. No
// call may be under way or follow.
func (m *sharedMemory) close() {
	m.socket.hangUp()
	if m.process != nil {
		m.process.close()
	}
	m.watchers.Wait()
	m.own.setState(layout.IdentityStateClosed, false)
	m.unregister()
	m.records.close()
	m.room.close()
	if m.peersRecords != nil {
		m.peersRecords.Close()
		m.peersRoom.Close()
	}
	m.own.release()
	m.peer.release()
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/sys"
)

// sharedMemory is what sender and receiver of a connection over shared memory have in common.
//
//	own region ──▶ the peer reads     control socket ◀─▶ doorbell bytes, descriptors of segments
//	peer region ◀── the peer writes   pidfd, hang-up ──▶ isGone
type sharedMemory struct {
	socket    *controlSocket
	own       *ownRegion
	peer      *peerRegion
	isTrusted bool

	// The doorbells of this side, which may be one. Those of the peer are nil if doorbells are
	// bytes on the control socket.
	records, room           *doorbell
	peersRecords, peersRoom *sys.Eventfd

	isGone   atomic.Bool // the peer has died or hung up
	isClosed atomic.Bool // this side has closed the connection
	broken   atomic.Pointer[error]
	isWoken  atomic.Bool // a waiter for both is to return

	watchers sync.WaitGroup
	process  *processWatch // nil without a verified pidfd
}

// start begins to watch the control socket and the process of the peer, in a goroutine each.
func (m *sharedMemory) start(process *sys.Pidfd) {
	m.own.setState(layout.IdentityStateOpen, m.isTrusted)
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

// wakeAll makes whoever waits look again.
func (m *sharedMemory) wakeAll() {
	m.records.wake()
	if m.room != m.records {
		m.room.wake()
	}
}

// fail ends the connection because of a violation or a system error, and hangs up. It returns the
// first error that ended it.
func (m *sharedMemory) fail(err error) error {
	if m.broken.CompareAndSwap(nil, &err) {
		m.own.setBroken(Number(err))
		m.socket.hangUp()
		m.wakeAll()
	}
	return *m.broken.Load()
}

// check returns why the connection cannot be used any more, or nil. The death of the peer is not a
// reason: what it had committed is read.
func (m *sharedMemory) check() error {
	if m.isClosed.Load() {
		return ErrClosed
	}
	if broken := m.broken.Load(); broken != nil {
		return *broken
	}
	return nil
}

// isOver reports whether a waiter has to return, whatever it waits for.
func (m *sharedMemory) isOver() bool {
	return m.isGone.Load() || m.isClosed.Load() || m.broken.Load() != nil || m.isWoken.Load()
}

// notifyRecords wakes the reader of the peer.
func (m *sharedMemory) notifyRecords() { m.notify(m.peersRecords) }

// notifyRoom wakes the sender of the peer.
func (m *sharedMemory) notifyRoom() { m.notify(m.peersRoom) }

func (m *sharedMemory) notify(eventfd *sys.Eventfd) {
	if eventfd == nil {
		m.socket.notify()
		return
	}
	// An eventfd that is full has a notification pending. Any other error harms the peer alone.
	_ = eventfd.Notify()
}

// interrupt makes all calls that wait return [ErrClosed], and all later ones.
func (m *sharedMemory) interrupt() {
	m.isClosed.Store(true)
	m.wakeAll()
}

// close gives up sockets, doorbells and the connection's share in the memory. No call is under way,
// and none follows.
func (m *sharedMemory) close() {
	m.socket.hangUp()
	if m.process != nil {
		m.process.close()
	}
	m.watchers.Wait()
	m.own.setState(layout.IdentityStateClosed, false)
	m.records.close()
	if m.room != m.records {
		m.room.close()
	}
	if m.peersRecords != nil {
		m.peersRecords.Close()
		m.peersRoom.Close()
	}
	m.own.release()
	m.peer.release()
}

// setDeadline sets the time at which waiting on a doorbell fails. It also wakes the waiter.
func setDeadline(d *doorbell, limit *atomic.Int64, t time.Time) error {
	nanoseconds := int64(0)
	if !t.IsZero() {
		nanoseconds = max(t.UnixNano(), 1)
	}
	limit.Store(nanoseconds)
	if err := d.setDeadline(t); err != nil {
		return fmt.Errorf("setting a deadline: %w", ErrClosed)
	}
	return nil
}

// hasPassed reports whether a deadline has passed; 0 never does.
func hasPassed(limit *atomic.Int64) bool {
	nanoseconds := limit.Load()
	return nanoseconds != 0 && time.Now().UnixNano() >= nanoseconds
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import "sync"

// A localEnd has the doorbells of one side of a connection whose peer is in this process too. The
// peer interrupts the wait on a doorbell, instead of notifying the eventfd.
//
//	eventfd     write, epoll_wait: a thread wakes up, on a processor that the kernel chooses
//	interrupt   the scheduler of Go runs the waiter next, often on the thread that interrupts
type localEnd struct{ records, room *doorbell }

// A localKey identifies one side of a connection: the session ID, which both sides have agreed, and
// the side's role.
type localKey struct {
	session [16]byte
	role    uint32
}

// localEnds has those ends of connections in this process whose peer is in this process.
var localEnds sync.Map // of localKey to *localEnd

func (m *sharedMemory) register() {
	if m.isLocal {
		localEnds.Store(m.ownKey(), &localEnd{m.records, m.room})
	}
}

func (m *sharedMemory) unregister() {
	if m.isLocal {
		localEnds.Delete(m.ownKey())
	}
}

func (m *sharedMemory) ownKey() localKey {
	return localKey{m.own.header.SessionID, m.own.header.Role}
}

// local returns the peer's end of the connection if this package has made it, in this process. The
// result is nil for other peers, for one that is not trusted, and until the peer has made its end.
func (m *sharedMemory) local() *localEnd {
	if !m.isLocal || m.peersRecords == nil {
		return nil
	}
	if end := m.localEnd.Load(); end != nil {
		return end
	}
	found, isThere := localEnds.Load(localKey{m.own.header.SessionID, m.peer.header.Role})
	if !isThere {
		return nil
	}
	end := found.(*localEnd)
	m.localEnd.Store(end)
	return end
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"fmt"

	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
)

// Releaser returns blocks of the peer that this process no longer reads (SPEC 5.3).
//
//	release ring  | id | id | id |  …     of this process's region
//	released      count of the entries ever written
//
// The release ring is never full: an honest peer has no more blocks in flight than the ring has
// entries. A peer with more blocks in flight loses entries of the ring, which damages only the
// state of its own slab.
type Releaser struct {
	entries  mem.Own
	own      mem.Own // control page of this process, with its word released
	mask     uint64  // number of entries - 1
	released uint64
}

// NewReleaser returns a releaser that writes the ids of blocks to entries, the release ring of this
// side, and their count to own, the control page of this side. It panics unless SPEC 3.2 allows the
// number of entries.
func NewReleaser(entries, own mem.Own) *Releaser {
	return &Releaser{entries: entries, own: own, mask: entryCount(entries.Len()) - 1}
}

// Release returns a block to the peer, which may then overwrite the block. The caller calls Release
// once for each BLOB, in any order, and then asks its [Waker] for room whether to notify the peer.
func (r *Releaser) Release(block uint64) {
	r.entries.Store(r.released&r.mask*mem.WordBytes, block)
	r.released++
	r.own.Publish(layout.ControlReleased, r.released)
}

// Reclaimer reads the ids of the blocks that the peer has returned.
type Reclaimer struct {
	entries mem.Peer
	peer    mem.Peer // control page of the peer, with its word released
	mask    uint64   // number of entries - 1
	taken   uint64   // entries taken so far
	seen    uint64   // word released of the peer, as last checked
}

// NewReclaimer returns a reclaimer that reads entries, the peer's release ring, and their count in
// the peer's control page. It panics unless SPEC 3.2 allows the number of entries.
func NewReclaimer(entries, peer mem.Peer) *Reclaimer {
	return &Reclaimer{entries: entries, peer: peer, mask: entryCount(entries.Len()) - 1}
}

// Next returns the id of the next block that the peer returned, and whether there is one. The id is
// unchecked: [Slab.Reclaim] checks it. The argument inFlight, the number of blocks in flight,
// bounds the ids that the peer can have returned. The error is a violation of the peer.
func (r *Reclaimer) Next(inFlight uint64) (uint64, bool, error) {
	if r.taken == r.seen {
		found := r.peer.Load(layout.ControlReleased)
		most := min(inFlight, r.mask+1)
		isWrong := found < r.seen || found-r.taken > most
		if isWrong && !fault.Is("released_unchecked") {
			return 0, false, fmt.Errorf("released is %d, outside %d..%d: %w",
				found, r.seen, r.taken+most, layout.ViolationReleased)
		}
		r.seen = found
		if r.taken == r.seen {
			return 0, false, nil
		}
	}
	id := r.entries.Load(r.taken & r.mask * mem.WordBytes)
	r.taken++
	return id, true, nil
}

// HasReturned reports whether the peer has returned blocks that [Reclaimer.Next] has not read yet.
// It is the cheap poll of a sender that waits for room.
func (r *Reclaimer) HasReturned() bool {
	return r.taken != r.seen || r.peer.Load(layout.ControlReleased) != r.seen
}

// entryCount returns the number of entries of a release ring of size bytes. It panics unless SPEC
// 3.2 allows that number.
func entryCount(size uint64) uint64 {
	count := size / mem.WordBytes
	if !layout.IsReleaseEntries(count) || size%mem.WordBytes != 0 {
		panic(fmt.Sprintf("ring: no release ring has %d bytes", size))
	}
	return count
}

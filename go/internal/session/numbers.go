// SPDX-License-Identifier: MIT OR Apache-2.0

package session

import (
	"container/heap"

	"partywall.test/go/internal/layout"
)

// numbers are the numbers of the streams that one side opens. A new stream gets the lowest free
// number, so the highest one depends only on how many streams were open at once.
type numbers struct {
	role  uint32 // of the side
	fresh uint32 // the lowest index that was never taken
	max   uint32 // how many indices the peer allows
	freed indexHeap
}

// take takes the lowest free number; it returns false if none is free.
func (n *numbers) take() (uint32, bool) {
	if len(n.freed) > 0 {
		return n.number(heap.Pop(&n.freed).(uint32)), true
	}
	if n.fresh >= n.max {
		return 0, false
	}
	n.fresh++
	return n.number(n.fresh - 1), true
}

// free makes a number free again, when its stream has ended.
func (n *numbers) free(number uint32) { heap.Push(&n.freed, (number-1)/2) }

// number returns the stream number of an index: odd for a connector, even for an acceptor (SPEC
// 11.1).
func (n *numbers) number(index uint32) uint32 {
	if n.role == layout.RoleConnector {
		return 2*index + 1
	}
	return 2*index + 2
}

// An indexHeap holds the free indices of [numbers], and implements [heap.Interface] with the lowest
// index first.
type indexHeap []uint32

// Len returns the number of indices.
func (h indexHeap) Len() int { return len(h) }

// Less compares two indices.
func (h indexHeap) Less(i, j int) bool { return h[i] < h[j] }

// Swap exchanges two indices.
func (h indexHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push adds an index at the end.
func (h *indexHeap) Push(index any) { *h = append(*h, index.(uint32)) }

// Pop removes the index at the end.
func (h *indexHeap) Pop() any {
	last := len(*h) - 1
	index := (*h)[last]
	*h = (*h)[:last]
	return index
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package session

import (
	"container/heap"

	"partywall.test/go/internal/layout"
)

// numbers are the numbers of the streams that one side of a session opens. A new stream gets the
// lowest free number, so the highest number in use depends only on how many streams were open at
// once.
type numbers struct {
	role  uint32 // of the side
	fresh uint32 // the lowest index that was never taken
	max   uint32 // how many indices the peer allows
	freed indexHeap
}

// take returns the lowest free stream number, which is in use from then on. The second result is
// false if no number is free.
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

// free makes the number of a stream free for another stream, because the stream has ended.
func (n *numbers) free(number uint32) { heap.Push(&n.freed, (number-1)/2) }

// number returns the stream number with this index: an odd number for a connector, an even one for
// an acceptor (SPEC 11.1).
func (n *numbers) number(index uint32) uint32 {
	if n.role == layout.RoleConnector {
		return 2*index + 1
	}
	return 2*index + 2
}

// An indexHeap holds the free indices of stream numbers. It implements [heap.Interface], and the
// lowest index is the first.
type indexHeap []uint32

func (h indexHeap) Len() int { return len(h) }

func (h indexHeap) Less(i, j int) bool { return h[i] < h[j] }

func (h indexHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *indexHeap) Push(index any) { *h = append(*h, index.(uint32)) }

func (h *indexHeap) Pop() any {
	last := len(*h) - 1
	index := (*h)[last]
	*h = (*h)[:last]
	return index
}

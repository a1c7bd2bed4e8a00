// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import "math/bits"

// freeIndex finds a free chunk by its size: in constant time, unless the list of that size is all
// that is left.
//
//	heads[b]  list of the free chunks of 2^b .. 2^(b+1)-1 units
//	filled    one bit for each list that is not empty
//
// It knows numbers of chunks and their sizes, but no memory.
type freeIndex struct {
	filled uint64
	heads  [64]uint32
	links  []freeLink // by number of the chunk
}

type freeLink struct {
	units          uint64
	previous, next uint32
}

func (f *freeIndex) init() {
	for i := range f.heads {
		f.heads[i] = none
	}
}

// insert adds a chunk that is not in the index and has at least one unit.
func (f *freeIndex) insert(chunk uint32, units uint64) {
	for uint64(len(f.links)) <= uint64(chunk) {
		f.links = append(f.links, freeLink{})
	}
	list := listOf(units)
	next := f.heads[list]
	f.links[chunk] = freeLink{units: units, previous: none, next: next}
	if next != none {
		f.links[next].previous = chunk
	}
	f.heads[list] = chunk
	f.filled |= 1 << list
}

// remove takes out a chunk that is in the index.
func (f *freeIndex) remove(chunk uint32) {
	link := f.links[chunk]
	list := listOf(link.units)
	if link.next != none {
		f.links[link.next].previous = link.previous
	}
	if link.previous != none {
		f.links[link.previous].next = link.next
		return
	}
	f.heads[list] = link.next
	if link.next == none {
		f.filled &^= 1 << list
	}
}

// find returns a chunk of at least so many units, or none. Of the one list whose chunks may be too
// small it tries the first few.
func (f *freeIndex) find(units uint64) uint32 {
	list := listOf(units)
	chunk := f.heads[list]
	for tries := 0; chunk != none && tries < triesMax; tries++ {
		if f.links[chunk].units >= units {
			return chunk
		}
		chunk = f.links[chunk].next
	}
	larger := f.filled &^ (1<<(list+1) - 1)
	if larger == 0 {
		return f.findLast(chunk, units)
	}
	return f.heads[bits.TrailingZeros64(larger)]
}

// findLast looks at the rest of a list, when no other chunk is large enough. Without it a sender
// would find no block though there is one.
func (f *freeIndex) findLast(chunk uint32, units uint64) uint32 {
	for chunk != none && f.links[chunk].units < units {
		chunk = f.links[chunk].next
	}
	return chunk
}

// listOf returns the number of the list for chunks of so many units, which are not 0.
func listOf(units uint64) int { return bits.Len64(units) - 1 }

// triesMax bounds the chunks that find tries in the list of the size asked for.
const triesMax = 16

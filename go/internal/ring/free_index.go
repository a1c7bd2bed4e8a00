// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import "math/bits"

// freeIndex finds a free chunk of the slab by its size. It takes constant time, unless only the
// list of the wanted size has chunks.
//
//	heads[b]  list of the free chunks of 2^b .. 2^(b+1)-1 units
//	filled    one bit for each list that is not empty
//
// A freeIndex knows the numbers of chunks and their sizes, but not their memory.
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

// insert adds a free chunk of at least one unit to the index, in which it must not be yet.
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

// remove takes a chunk that is about to be used out of the index.
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

// find returns a free chunk with at least the wanted number of units, or none if there is no such
// chunk. The list of the wanted size may also have chunks that are too small; of this list find
// tries only the first few.
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

// findLast searches the rest of a list of free chunks, which starts at chunk, for one that is large
// enough. It is called when no list of larger chunks has one. Without this search, a large enough
// chunk late in the list would not be found.
func (f *freeIndex) findLast(chunk uint32, units uint64) uint32 {
	for chunk != none && f.links[chunk].units < units {
		chunk = f.links[chunk].next
	}
	return chunk
}

// listOf returns the number of the list for free chunks of the given size in units, which is at
// least 1.
func listOf(units uint64) int { return bits.Len64(units) - 1 }

// triesMax bounds the chunks that a search tries in the list of the wanted size, where chunks may
// be too small. Lists of longer chunks need only one try.
const triesMax = 16

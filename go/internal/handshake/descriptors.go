// SPDX-License-Identifier: MIT OR Apache-2.0

package handshake

import "partywall.test/go/internal/layout"

// arrivedDescriptors are the descriptors that the peer has sent and that no frame has claimed, in
// their order. The nth descriptor belongs to the nth place in the lists of all frames (SPEC 2.2).
type arrivedDescriptors struct {
	unclaimed   []int
	count       int
	isTruncated bool
	close       func(int)
}

// add takes over the descriptors of an arrival, even if it returns an error because there are too
// many.
func (d *arrivedDescriptors) add(a Arrival) error {
	d.count += len(a.Descriptors)
	d.isTruncated = d.isTruncated || a.IsTruncated
	d.unclaimed = append(d.unclaimed, a.Descriptors...)
	if d.count > arrivedMax {
		return broken(layout.ViolationFrame)
	}
	return nil
}

// claim takes the descriptors that a frame lists. If fewer have come than list has, that is a
// violation, unless the kernel dropped descriptors on the way.
func (d *arrivedDescriptors) claim(list layout.Descriptors) (*claimedDescriptors, error) {
	c := &claimedDescriptors{}
	for _, kind := range list {
		if len(d.unclaimed) == 0 {
			c.isTruncated = true
			break
		}
		c.entries = append(c.entries, claimedDescriptor{kind, d.unclaimed[0]})
		d.unclaimed = d.unclaimed[1:]
	}
	if c.isTruncated && !d.isTruncated {
		c.drop(d.close)
		return nil, broken(layout.ViolationFrame)
	}
	return c, nil
}

func (d *arrivedDescriptors) isEmpty() bool { return len(d.unclaimed) == 0 }

// drop closes every arrived descriptor that no frame has claimed.
func (d *arrivedDescriptors) drop() {
	for _, descriptor := range d.unclaimed {
		d.close(descriptor)
	}
	d.unclaimed = nil
}

// claimedDescriptors are the descriptors of one frame, each with its kind.
type claimedDescriptors struct {
	entries     []claimedDescriptor
	isTruncated bool
}

type claimedDescriptor struct {
	kind       uint8
	descriptor int
}

func (c *claimedDescriptors) has(kind uint8) bool {
	for _, entry := range c.entries {
		if entry.kind == kind {
			return true
		}
	}
	return false
}

// take removes the frame's descriptor of a kind and returns it, or -1 if the frame has none.
func (c *claimedDescriptors) take(kind uint8) int {
	for i, entry := range c.entries {
		if entry.kind == kind {
			c.entries = append(c.entries[:i], c.entries[i+1:]...)
			return entry.descriptor
		}
	}
	return -1
}

// drop closes every descriptor of the frame that take has not removed.
func (c *claimedDescriptors) drop(close func(int)) {
	for _, entry := range c.entries {
		close(entry.descriptor)
	}
	c.entries = nil
}

// arrivedMax bounds the descriptors of all frames of a handshake (SPEC 2.2).
const arrivedMax = 8

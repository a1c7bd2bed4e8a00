// SPDX-License-Identifier: MIT OR Apache-2.0

package handshake

import "partywall.test/go/internal/layout"

// arrivedDescriptors are the descriptors that the peer has sent and that no frame of the handshake
// has taken, in the order in which they came. The nth descriptor belongs to the nth entry in the
// lists of all frames together (SPEC 2.2).
type arrivedDescriptors struct {
	unclaimed   []int
	count       int
	isTruncated bool
	close       func(int)
}

// add takes over the descriptors that one read of the socket returned. It owns them even if it
// returns an error, which says that the peer has sent too many.
func (d *arrivedDescriptors) add(a Arrival) error {
	d.count += len(a.Descriptors)
	d.isTruncated = d.isTruncated || a.IsTruncated
	d.unclaimed = append(d.unclaimed, a.Descriptors...)
	if d.count > arrivedMax {
		return broken(layout.ViolationFrame)
	}
	return nil
}

// claim takes the descriptors that a frame of the handshake lists. If fewer descriptors have come
// than the frame lists, the peer has broken a rule, unless the kernel dropped descriptors on the
// way.
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

// drop closes the arrived descriptors that no frame of the handshake has taken.
func (d *arrivedDescriptors) drop() {
	for _, descriptor := range d.unclaimed {
		d.close(descriptor)
	}
	d.unclaimed = nil
}

// claimedDescriptors are the descriptors that belong to one frame of the handshake, each with its
// kind.
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

// take removes the descriptor of the given kind from those of the frame, and returns it. The result
// is -1 if the frame has none.
func (c *claimedDescriptors) take(kind uint8) int {
	for i, entry := range c.entries {
		if entry.kind == kind {
			c.entries = append(c.entries[:i], c.entries[i+1:]...)
			return entry.descriptor
		}
	}
	return -1
}

// drop closes the descriptors of the frame that [claimedDescriptors.take] has not removed.
func (c *claimedDescriptors) drop(close func(int)) {
	for _, entry := range c.entries {
		close(entry.descriptor)
	}
	c.entries = nil
}

// arrivedMax is the most descriptors that the peer may send in all frames of a handshake together
// (SPEC 2.2).
const arrivedMax = 8

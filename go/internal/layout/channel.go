// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

// A Channel checks the records of one direction of a channel, in the order in which they come (SPEC
// 4.3, 5, 8.2). The caller has checked the header of each record before, by [ParseRing] or
// [ParseSocket].
//
// After an error the connection has ended, and the Channel is not used any more.
type Channel struct {
	Assembly Assembly
	limits   Limits
	segments *Segments // nil on a socket
	isClosed bool
}

// NewChannel returns a Channel that has received no record. On a socket, which has no segments, the
// argument segments is nil.
func NewChannel(limits Limits, segments *Segments) *Channel {
	return &Channel{limits: limits, segments: segments}
}

// IsClosed reports whether the peer has sent the record CLOSE_WRITE, after which no more records
// may come.
func (c *Channel) IsClosed() bool { return c.isClosed }

// Receive checks the next record. On a socket the payload of a BLOB is its body without the bytes
// of the message.
func (c *Channel) Receive(h Header, payload []byte) error {
	if c.isClosed || isSessionKind(h.Kind) || c.segments == nil && isSharedKind(h.Kind) {
		return ViolationUnexpected
	}
	switch {
	case h.Kind == KindData:
		if uint64(len(payload)) > c.limits.MessageMax {
			return ViolationMessageLength
		}
		return c.whole()
	case h.Kind == KindBlob:
		if len(payload) != BlobBytes {
			return ViolationBody
		}
		if err := CheckBlob(payload, c.limits, c.segments); err != nil {
			return err
		}
		return c.whole()
	case isFragment(h.Kind):
		if err := checkFragment(h.Kind, payload, c.limits.MessageMax); err != nil {
			return err
		}
		return c.Assembly.Add(h.Kind, payload)
	case h.Kind == KindSegment || h.Kind == KindSegmentRetire:
		return c.segments.receive(h.Kind, payload)
	case h.Kind == KindCloseWrite:
		c.isClosed = true
		c.Assembly.Drop()
		return checkEmpty(payload)
	}
	return nil // PAD
}

// whole returns a violation if a whole message comes between the fragments of another message.
func (c *Channel) whole() error {
	if c.Assembly.IsWithin() {
		return ViolationFragment
	}
	return nil
}

// CheckBlob checks the body of a record BLOB by itself, without the records before it. On a socket,
// where the bytes of the message follow the body, the argument segments is nil.
func CheckBlob(body []byte, limits Limits, segments *Segments) error {
	b, err := ParseBlob(body)
	if err != nil {
		return err
	}
	if segments != nil {
		return segments.CheckBlob(b)
	}
	zero := body[BlobZeroOffset] | body[BlobZeroOffset+1] | body[BlobZeroOffset+2] |
		body[BlobZeroOffset+3]
	if b.HasCredit || b.Block != 0 || b.Segment != 0 || b.Offset != 0 || zero != 0 {
		return ViolationBody
	}
	if b.Length > limits.MessageMax {
		return ViolationMessageLength
	}
	return nil
}

// isSessionKind reports whether only sessions have records of the kind.
func isSessionKind(kind Kind) bool {
	return kind == KindOpen || kind >= KindReset && kind <= KindEnd
}

// isSharedKind reports whether a channel has records of the kind over shared memory only, and not
// on a socket.
func isSharedKind(kind Kind) bool {
	return kind >= KindFragmentFirst && kind <= KindSegmentRetire || kind == KindPad
}

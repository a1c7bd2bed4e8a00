// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

// parts are those bytes of several buffers that are still to be sent. The buffers themselves are
// not changed.
//
//	buffers    [ sent | unsent ] [ unsent ] …
//	           0      sent
type parts struct {
	buffers [][]byte
	sent    int // bytes of the first buffer
}

func (p *parts) size() int {
	size := -p.sent
	for _, b := range p.buffers {
		size += len(b)
	}
	return size
}

// next takes the next n bytes, without a copy, if they lie in one buffer. If they do not, it
// returns nil. At least n bytes are left, and n is not 0.
func (p *parts) next(n int) []byte {
	for len(p.buffers[0]) == p.sent {
		p.buffers, p.sent = p.buffers[1:], 0
	}
	rest := p.buffers[0][p.sent:]
	if len(rest) < n {
		return nil
	}
	p.sent += n
	return rest[:n]
}

// copyTo takes the next len(into) bytes and copies them to into. At least as many bytes are left.
func (p *parts) copyTo(into []byte) {
	for len(into) > 0 {
		n := copy(into, p.buffers[0][p.sent:])
		into = into[n:]
		if p.sent += n; p.sent == len(p.buffers[0]) {
			p.buffers, p.sent = p.buffers[1:], 0
		}
	}
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import "sync/atomic"

// mapping is shared memory with a count of its users: the connection, and each message or
// reservation that lies in it (SPEC 7.4). The last of them unmaps it.
type mapping struct {
	users atomic.Int64
	unmap func() error
}

// newMapping returns a mapping with one user.
func newMapping(unmap func() error) *mapping {
	m := &mapping{unmap: unmap}
	m.users.Store(1)
	return m
}

// retain adds a user. The caller is one already.
func (m *mapping) retain() { m.users.Add(1) }

// release takes a user away. The error of munmap can only be a fault of this package.
func (m *mapping) release() {
	switch left := m.users.Add(-1); {
	case left == 0:
		_ = m.unmap()
	case left < 0:
		panic("wire: a mapping was released more often than used")
	}
}

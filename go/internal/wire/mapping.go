// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import "sync/atomic"

// mapping is shared memory that counts its users: the connection, and each message or reservation
// that lies in it (SPEC 7.4). When the last user is gone, the memory is unmapped.
type mapping struct {
	users atomic.Int64
	unmap func() error
}

// newMapping returns a mapping with one user. When the last user is gone, unmap is called.
func newMapping(unmap func() error) *mapping {
	m := &mapping{unmap: unmap}
	m.users.Store(1)
	return m
}

// retain adds a user to the mapping. The caller must be a user already.
func (m *mapping) retain() { m.users.Add(1) }

// release removes a user from the mapping. The error of munmap is ignored, because only a fault of
// this package could cause one.
func (m *mapping) release() {
	switch left := m.users.Add(-1); {
	case left == 0:
		_ = m.unmap()
	case left < 0:
		panic("wire: a mapping was released more often than used")
	}
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package sys

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"partywall.test/go/internal/mem"
)

// PeerMap is a read-only mapping of the peer's region or of one of its segments.
type PeerMap struct {
	mapped []byte
}

// MapPeer checks and maps the memory behind descriptor, which the peer announced with size bytes.
// It accepts at most limit bytes. The checks are those of SPEC 3.1, in its order; no byte of the
// memory is read. [IsViolation] tells whether an error is a breach by the peer or a failure of this
// process.
//
// The caller closes the descriptor, even after an error.
func MapPeer(descriptor int, size, limit uint64) (*PeerMap, error) {
	if err := checkSealed(descriptor); err != nil {
		return nil, err
	}
	if err := checkFileSystem(descriptor); err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%w: %d bytes exceed the limit of %d", ErrSize, size, limit)
	}
	if err := checkSize(size); err != nil {
		return nil, err
	}
	if err := checkAllocated(descriptor, size); err != nil {
		return nil, err
	}
	mapped, err := unix.Mmap(descriptor, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("%w: mmap: %w", ErrUnreadable, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: mmap of %d bytes: %w", ErrMap, size, err)
	}
	return &PeerMap{mapped: mapped}, nil
}

// Memory returns the bytes of the mapping, which are valid until [PeerMap.Unmap].
func (m *PeerMap) Memory() mem.Peer { return mem.NewPeer(m.mapped) }

// Unmap unmaps the memory. The caller must not use the mapping or its memory afterwards.
func (m *PeerMap) Unmap() error {
	mapped := m.mapped
	m.mapped = nil
	if mapped == nil {
		return nil
	}
	return unix.Munmap(mapped)
}

// checkSealed returns an error unless the descriptor is a memfd with every required seal. With
// these seals, the peer cannot change what later checks find.
func checkSealed(descriptor int) error {
	present, err := unix.FcntlInt(uintptr(descriptor), unix.F_GET_SEALS, 0)
	if err != nil {
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EBADF) {
			return fmt.Errorf("%w: the descriptor is no memfd: %w", ErrNotSealed, err)
		}
		return fmt.Errorf("F_GET_SEALS: %w", err)
	}
	if missing := seals &^ present; missing != 0 {
		return fmt.Errorf("%w: the seals %#x are missing", ErrNotSealed, missing)
	}
	return nil
}

// checkFileSystem returns an error unless the memory is on tmpfs. Memory of huge pages is on
// another file system, and so is an error.
func checkFileSystem(descriptor int) error {
	var stat unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(descriptor, &stat) }); err != nil {
		return fmt.Errorf("fstatfs: %w", err)
	}
	if uint32(stat.Type) != unix.TMPFS_MAGIC {
		return fmt.Errorf("%w: file system %#x", ErrNotTmpfs, uint32(stat.Type))
	}
	return nil
}

// checkAllocated returns an error unless the memory has exactly size bytes and all of them are
// allocated.
func checkAllocated(descriptor int, size uint64) error {
	var stat unix.Stat_t
	if err := retry(func() error { return unix.Fstat(descriptor, &stat) }); err != nil {
		return fmt.Errorf("fstat: %w", err)
	}
	if uint64(stat.Size) != size {
		return fmt.Errorf("%w: %d bytes, announced are %d", ErrSize, stat.Size, size)
	}
	if uint64(stat.Blocks)*statBlockBytes < size {
		return fmt.Errorf("%w: %d blocks for %d bytes", ErrHoles, stat.Blocks, size)
	}
	return nil
}

// statBlockBytes is the number of bytes in a unit of st_blocks, a field of the kernel's struct
// stat, on every file system.
const statBlockBytes = 512

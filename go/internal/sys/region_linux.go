// SPDX-License-Identifier: MIT OR Apache-2.0

package sys

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"partywall.test/go/internal/mem"
)

// Region is shared memory that this process alone can write: a region, or a segment.
//
//	memfd_create → ftruncate → fallocate → mmap → F_ADD_SEALS
//
// Every byte is allocated before the constructor returns, so a store cannot fail for lack of
// memory. From the sealing on no process can resize the memory, map it writable or write() to it.
type Region struct {
	descriptor int
	mapped     []byte
}

// NewRegion makes a region of size bytes, all zero. The name is for tools that list descriptors.
func NewRegion(name string, size uint64) (*Region, error) {
	if err := checkSize(size); err != nil {
		return nil, err
	}
	descriptor, err := createMemfd(name)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	mapped, err := prepare(descriptor, int(size))
	if err != nil {
		closeDescriptor(descriptor)
		return nil, err
	}
	return &Region{descriptor: descriptor, mapped: mapped}, nil
}

// Descriptor returns the descriptor of the memory, which is sent to the peer. It stays open until
// CloseDescriptor or Unmap.
func (r *Region) Descriptor() int { return r.descriptor }

// Memory returns the bytes of the region, which are valid until [Region.Unmap].
func (r *Region) Memory() mem.Own { return mem.NewOwn(r.mapped) }

// CloseDescriptor closes the descriptor of the memory, which this side does not need once the peer
// has received it. The memory stays mapped.
func (r *Region) CloseDescriptor() {
	if r.descriptor >= 0 {
		closeDescriptor(r.descriptor)
		r.descriptor = -1
	}
}

// Unmap closes the descriptor and unmaps the memory. The caller must not use the region or its
// memory afterwards.
func (r *Region) Unmap() error {
	r.CloseDescriptor()
	mapped := r.mapped
	r.mapped = nil
	if mapped == nil {
		return nil
	}
	return unix.Munmap(mapped)
}

// createMemfd makes an empty memfd that can be sealed.
func createMemfd(name string) (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	descriptor, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		// The call with the flag MFD_NOEXEC_SEAL has failed, so this call leaves the flag out:
		// Linux before 6.3 does not know it.
		return unix.MemfdCreate(name, flags)
	}
	return descriptor, err
}

// prepare allocates, maps and seals the memory of a memfd.
func prepare(descriptor, size int) ([]byte, error) {
	if err := unix.Ftruncate(descriptor, int64(size)); err != nil {
		return nil, fmt.Errorf("ftruncate to %d bytes: %w", size, err)
	}
	if err := allocate(descriptor, int64(size)); err != nil {
		return nil, fmt.Errorf("fallocate of %d bytes: %w", size, err)
	}
	const protection = unix.PROT_READ | unix.PROT_WRITE
	mapped, err := unix.Mmap(descriptor, 0, size, protection, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%w: mmap of %d bytes: %w", ErrMap, size, err)
	}
	if err := unix.Madvise(mapped, unix.MADV_DONTFORK); err != nil {
		return nil, errors.Join(fmt.Errorf("MADV_DONTFORK: %w", err), unix.Munmap(mapped))
	}
	if _, err := unix.FcntlInt(uintptr(descriptor), unix.F_ADD_SEALS, seals); err != nil {
		return nil, errors.Join(fmt.Errorf("F_ADD_SEALS: %w", err), unix.Munmap(mapped))
	}
	return mapped, nil
}

// allocate allocates every byte of the memory. If a signal interrupts fallocate, the kernel frees
// what it has allocated, so the call is repeated from the start.
func allocate(descriptor int, size int64) error {
	for range allocateAttemptsMax {
		if err := unix.Fallocate(descriptor, 0, 0, size); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return unix.EINTR
}

const (
	// seals are the seals that every region and segment must have (SPEC 3.1).
	seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL

	// allocateAttemptsMax bounds how often an interrupted fallocate is called, so that signals
	// without end cannot hold up this process for ever.
	allocateAttemptsMax = 100
)

// SPDX-License-Identifier: MIT OR Apache-2.0

package sys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"
)

func newRegion(t *testing.T, size uint64) *Region {
	t.Helper()
	region, err := NewRegion("partywall-test", size)
	if err != nil {
		t.Fatalf("making a region of %d bytes: %v", size, err)
	}
	t.Cleanup(func() {
		if err := region.Unmap(); err != nil {
			t.Errorf("unmapping: %v", err)
		}
	})
	return region
}

func TestRegionIsZeroAndAllocated(t *testing.T) {
	region := newRegion(t, 2*GrainBytes)
	memory := region.Memory()
	if memory.Len() != 2*GrainBytes {
		t.Fatalf("the region has %d bytes", memory.Len())
	}
	for offset := uint64(0); offset < memory.Len(); offset += 8 {
		if memory.Load(offset) != 0 {
			t.Fatalf("the word at %d is not 0", offset)
		}
	}
	if err := checkAllocated(region.Descriptor(), 2*GrainBytes); err != nil {
		t.Error(err)
	}
}

func TestRegionOfImpossibleSizeIsRefused(t *testing.T) {
	for _, size := range []uint64{0, 1, GrainBytes - 1, GrainBytes + 8, 1 << 63} {
		if _, err := NewRegion("partywall-test", size); !errors.Is(err, ErrSize) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func TestSealedRegionRefusesEveryChangeByDescriptor(t *testing.T) {
	region := newRegion(t, GrainBytes)
	descriptor := region.Descriptor()
	changes := map[string]func() error{
		"write": func() error { _, err := unix.Pwrite(descriptor, []byte{1}, 0); return err },
		"writable mapping": func() error {
			const protection = unix.PROT_READ | unix.PROT_WRITE
			_, err := unix.Mmap(descriptor, 0, GrainBytes, protection, unix.MAP_SHARED)
			return err
		},
		"shrink": func() error { return unix.Ftruncate(descriptor, 0) },
		"grow":   func() error { return unix.Ftruncate(descriptor, 2*GrainBytes) },
		"hole": func() error {
			const mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
			return unix.Fallocate(descriptor, mode, 0, GrainBytes)
		},
		"another seal": func() error {
			_, err := unix.FcntlInt(uintptr(descriptor), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
			return err
		},
	}
	for name, change := range changes {
		if err := change(); !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
}

func TestOwnerWritesAndPeerReadsSealedRegion(t *testing.T) {
	region := newRegion(t, GrainBytes)
	peer, err := MapPeer(region.Descriptor(), GrainBytes, GrainBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Unmap()
	region.CloseDescriptor()
	region.Memory().Publish(4096, 0x1122334455667788)
	if got := peer.Memory().Load(4096); got != 0x1122334455667788 {
		t.Errorf("the peer reads %#x", got)
	}
}

func TestWriteToPeerMappingFaults(t *testing.T) {
	region := newRegion(t, GrainBytes)
	peer, err := MapPeer(region.Descriptor(), GrainBytes, GrainBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Unmap()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() == nil {
			t.Error("a write to the peer's memory succeeded")
		}
	}()
	peer.Memory().Bytes(0, 8)[0] = 1
}

// memfd makes a memfd as a hostile peer might: with these seals and this size. If allocated is
// false, no memory is allocated for its bytes.
func memfd(t *testing.T, size int64, allocated bool, seals int) int {
	t.Helper()
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	descriptor, err := unix.MemfdCreate("partywall-test", flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeDescriptor(descriptor) })
	if err := unix.Ftruncate(descriptor, size); err != nil {
		t.Fatal(err)
	}
	if allocated {
		if err := unix.Fallocate(descriptor, 0, 0, size); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(descriptor), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return descriptor
}

func TestPeerMemoryIsRefused(t *testing.T) {
	sealed := memfd(t, GrainBytes, true, seals)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer closeDescriptor(pipe[0])
	defer closeDescriptor(pipe[1])
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(GrainBytes); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name        string
		descriptor  int
		size, limit uint64
		want        error
	}{
		{"pipe", pipe[0], GrainBytes, GrainBytes, ErrNotSealed},
		{"regular file", int(file.Fd()), GrainBytes, GrainBytes, ErrNotSealed},
		{"no seal", memfd(t, GrainBytes, true, 0), GrainBytes, GrainBytes, ErrNotSealed},
		{"beyond limit", sealed, GrainBytes, GrainBytes - 1, ErrSize},
		{"size 0", sealed, 0, GrainBytes, ErrSize},
		{"size no multiple", sealed, 4096, GrainBytes, ErrSize},
		{"size announced too large", sealed, 2 * GrainBytes, 2 * GrainBytes, ErrSize},
		{"size announced too small", memfd(t, 2*GrainBytes, true, seals), GrainBytes, GrainBytes,
			ErrSize},
		{"size of no map", sealed, 1 << 63, 1 << 63, ErrSize},
		{"holes", memfd(t, GrainBytes, false, seals), GrainBytes, GrainBytes, ErrHoles},
	}
	path := fmt.Sprintf("/proc/self/fd/%d", sealed)
	if writable, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
		defer closeDescriptor(writable)
		_, err := MapPeer(writable, GrainBytes, GrainBytes)
		if !errors.Is(err, ErrUnreadable) || !IsViolation(err) {
			t.Errorf("descriptor for writing alone: %v", err)
		}
	} else {
		t.Errorf("opening memory for writing alone: %v", err)
	}
	for _, seal := range []int{unix.F_SEAL_SHRINK, unix.F_SEAL_GROW, unix.F_SEAL_FUTURE_WRITE,
		unix.F_SEAL_SEAL} {
		descriptor := memfd(t, GrainBytes, true, seals&^seal)
		_, err := MapPeer(descriptor, GrainBytes, GrainBytes)
		if !errors.Is(err, ErrNotSealed) {
			t.Errorf("without seal %#x: %v", seal, err)
		}
	}
	for _, c := range cases {
		mapped, err := MapPeer(c.descriptor, c.size, c.limit)
		if !errors.Is(err, c.want) || !IsViolation(err) || mapped != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if mapped, err := MapPeer(sealed, GrainBytes, GrainBytes); err != nil {
		t.Errorf("sealed memory: %v", err)
	} else if err := mapped.Unmap(); err != nil {
		t.Error(err)
	}
}

func TestPeerMemoryOfHugePagesIsRefused(t *testing.T) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING | unix.MFD_HUGETLB
	descriptor, err := unix.MemfdCreate("partywall-test", flags)
	if err != nil {
		t.Skipf("this machine has no huge pages: %v", err)
	}
	defer closeDescriptor(descriptor)
	if _, err := unix.FcntlInt(uintptr(descriptor), unix.F_ADD_SEALS, seals); err != nil {
		t.Skipf("huge pages cannot be sealed here: %v", err)
	}
	if _, err := MapPeer(descriptor, GrainBytes, GrainBytes); !errors.Is(err, ErrNotTmpfs) {
		t.Errorf("huge pages: %v, want %v", err, ErrNotTmpfs)
	}
}

func TestLocalFailureIsNoViolation(t *testing.T) {
	if IsViolation(ErrMap) || IsViolation(unix.EMFILE) || IsViolation(nil) {
		t.Error("the peer is blamed for a failure of this process")
	}
}

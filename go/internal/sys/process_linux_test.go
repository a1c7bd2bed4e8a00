// SPDX-License-Identifier: MIT OR Apache-2.0

package sys

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNamespacesOfThisProcessAreShared(t *testing.T) {
	if !SharesNamespaces(os.Getpid()) {
		t.Error("this process shares its own namespaces")
	}
	for _, pid := range []int{0, -1, 1 << 30} {
		if SharesNamespaces(pid) {
			t.Errorf("process %d shares them", pid)
		}
	}
}

func TestProcessWithoutCPUsIsTakenToShare(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if before.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	for _, pid := range []int{0, -1, 1 << 30, unix.Gettid()} {
		if got, want := SharesOneCPU(pid), before.Count() == 1; got != want {
			t.Errorf("on %d CPUs, process %d shares one: %v", before.Count(), pid, got)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }()
	for _, pid := range []int{0, -1, 1 << 30} {
		if got, want := SharesOneCPU(pid), runtime.NumCPU() == 1; got != want {
			t.Errorf("a thread on one CPU of %d shares it with process %d: %v", runtime.NumCPU(), pid, got)
		}
	}
	if !SharesOneCPU(unix.Gettid()) {
		t.Error("a thread on one CPU does not share it with itself")
	}
}

func TestOnlyPlainEventfdIsDoorbell(t *testing.T) {
	cases := []struct {
		name  string
		flags int
		want  error
	}{
		{"plain", unix.EFD_NONBLOCK, nil},
		{"semaphore", unix.EFD_NONBLOCK | unix.EFD_SEMAPHORE, ErrNotEventfd},
		{"blocking", 0, ErrNotEventfd},
	}
	for _, c := range cases {
		descriptor, err := unix.Eventfd(0, unix.EFD_CLOEXEC|c.flags)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckEventfd(descriptor); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		CloseDescriptor(descriptor)
	}
	pipe, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer write.Close()
	if err := CheckEventfd(int(pipe.Fd())); !errors.Is(err, ErrNotEventfd) {
		t.Errorf("a pipe: %v", err)
	}
}

func TestDirectoryIsLockedOnce(t *testing.T) {
	path := t.TempDir()
	first, err := LockDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockDirectory(path); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("locked twice: %v", err)
	}
	first.Close()
	second, err := LockDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}

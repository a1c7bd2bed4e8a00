// SPDX-License-Identifier: MIT OR Apache-2.0

package wait

import (
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that may run on one CPU only polls for a peer that may run on another, but not for a
// peer that has the same CPU. If the CPUs of the peer are unknown, those of this process decide.
func TestPollingIsFutileOnOneCPUOnly(t *testing.T) {
	if hasCPUQuota() {
		t.Skip("polling is futile for this process, whatever the CPUs of the peer")
	}
	misses.Store(missesUnchecked)
	anywhere := startPeer(t)
	hasOtherCPU := onOneCPU(t, func() {
		isFutileFor(t, 0, runtime.NumCPU() == 1)
		isFutileFor(t, startPeer(t), true)
	})
	onOneCPU(t, func() { isFutileFor(t, anywhere, !hasOtherCPU) })
	if hasOtherCPU {
		isFutileFor(t, 0, false)
	}
}

// isFutileFor checks whether the first poll in vain for a peer ends polling for ever.
func isFutileFor(t *testing.T, peer int, want bool) {
	t.Helper()
	b := NewBudget(limit, peer)
	b.Miss()
	if isFutile := b == (Budget{}); isFutile != want {
		t.Errorf("polling for process %d is futile: %v, want %v", peer, isFutile, want)
	}
}

// startPeer starts a process that may run where the calling thread may run, until the test ends.
func startPeer(t *testing.T) int {
	t.Helper()
	command := exec.Command("cat")
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		if err := command.Wait(); err != nil {
			t.Error(err)
		}
	})
	return command.Process.Pid
}

// onOneCPU calls do on a thread that may run on one CPU only. It returns whether other threads may
// run on another CPU.
func onOneCPU(t *testing.T, do func()) bool {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !before.IsSet(cpu) {
		cpu++
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.SchedSetaffinity(0, &before); err != nil {
			t.Fatal(err)
		}
	}()
	do()
	return before.Count() > 1
}

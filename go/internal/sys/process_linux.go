// SPDX-License-Identifier: MIT OR Apache-2.0

package sys

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// EffectiveUID returns the effective user id of this process.
func EffectiveUID() uint32 { return uint32(unix.Geteuid()) }

// OverflowUID returns the user id with which the kernel shows users that have no id in this
// namespace.
func OverflowUID() uint32 { return overflowUID() }

var overflowUID = sync.OnceValue(func() uint32 {
	const usual = 65534
	text, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		return usual
	}
	number, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return usual
	}
	return uint32(number)
})

// SharesNamespaces reports whether process pid is in the pid namespace and the user namespace of
// this process. If that cannot be found out, the result is false.
func SharesNamespaces(pid int) bool {
	if pid <= 0 {
		return false
	}
	for _, kind := range []string{"pid", "user"} {
		own, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			return false
		}
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		if err != nil || theirs != own {
			return false
		}
	}
	return true
}

// HasCPUQuota reports whether a control group limits the CPU time of this process. Under such a
// limit, a goroutine that spins uses up CPU time that its peer may need.
func HasCPUQuota() bool {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for ok {
			limit, err := os.ReadFile("/sys/fs/cgroup" + path + "/cpu.max")
			if err == nil && !strings.HasPrefix(string(limit), "max") {
				return true
			}
			parent := strings.LastIndexByte(path, '/')
			if parent < 0 {
				break
			}
			path = path[:parent]
		}
	}
	return false
}

// SharesOneCPU reports whether the calling thread and the process pid may run on one CPU only, and
// it is the same. The CPUs of the process are those of its first thread. If they cannot be found
// out, the result says whether this process had only one CPU when it started.
func SharesOneCPU(pid int) bool {
	var own, others unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil || own.Count() > 1 {
		return false
	}
	if pid <= 0 || unix.SchedGetaffinity(pid, &others) != nil {
		return runtime.NumCPU() == 1
	}
	return own == others
}

// SetNonblock makes a descriptor non-blocking, so that the Go runtime can wait for it.
func SetNonblock(descriptor int) error { return unix.SetNonblock(descriptor, true) }

// SetMode sets the permission bits of the socket file that bind will make for a socket.
func SetMode(socket int, mode uint32) error { return unix.Fchmod(socket, mode) }

// CloseDescriptor closes a descriptor that came from the peer and is not needed.
func CloseDescriptor(descriptor int) { closeDescriptor(descriptor) }

// Yield lets another thread run, if one waits for the processor on which this thread runs.
func Yield() {
	// The result is ignored: sched_yield always succeeds. While this thread is in the system call,
	// the Go runtime may give its goroutines to another thread.
	_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}

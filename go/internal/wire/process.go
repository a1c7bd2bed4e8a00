// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"os"
	"syscall"

	"partywall.test/go/internal/sys"
)

// processWatch waits until the peer's process has ended. The end of the socket is not enough, since
// a forked child of that process could keep the socket open (SPEC 7.2).
type processWatch struct {
	pidfd *sys.Pidfd
	file  *os.File // owns the descriptor; nil if it cannot be waited for
	raw   syscall.RawConn
}

// newProcessWatch returns a watch of the peer's process, and takes over pidfd, which must be
// verified.
func newProcessWatch(pidfd *sys.Pidfd) *processWatch {
	w := &processWatch{pidfd: pidfd}
	if sys.SetNonblock(pidfd.Descriptor()) != nil {
		return w
	}
	w.file = os.NewFile(uintptr(pidfd.Descriptor()), "pidfd")
	w.raw, _ = w.file.SyscallConn()
	return w
}

// wait returns true once the peer's process has ended, or false once the watch is closed.
func (w *processWatch) wait() bool {
	if w.raw == nil {
		return false
	}
	isEnded := false
	err := w.raw.Read(func(uintptr) bool {
		ended, err := w.pidfd.IsEnded()
		isEnded = ended
		return ended || err != nil
	})
	return err == nil && isEnded
}

func (w *processWatch) close() {
	if w.file != nil {
		_ = w.file.Close()
		return
	}
	w.pidfd.Close()
}

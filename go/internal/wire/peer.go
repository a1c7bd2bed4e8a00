// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"fmt"
	"os"

	"partywall.test/go/internal/handshake"
	"partywall.test/go/internal/sys"
)

// A Peer is the process at the other end of a connection, as far as the kernel has identified it.
type Peer struct {
	// HasCredentials says whether PID, UID and GID are known. Over TCP they are unknown.
	HasCredentials bool
	PID            int
	UID, GID       uint32
	Trusted        bool
	Address        string // of its socket
}

// String describes the peer in a form that is fit for a log.
func (p Peer) String() string {
	if !p.HasCredentials {
		return fmt.Sprintf("peer at %q", p.Address)
	}
	return fmt.Sprintf("process %d of user %d", p.PID, p.UID)
}

func (p Peer) isThisProcess() bool { return p.HasCredentials && p.PID == os.Getpid() }

// trusts decides whether this side trusts the peer (SPEC 9.1). The argument process is a verified
// pidfd of the peer's process, or nil without one.
func (s *Settings) trusts(sender handshake.Sender, process *sys.Pidfd) bool {
	switch s.Trust {
	case TrustEveryone:
		return true
	case TrustUntrusted:
		return false
	}
	isOwn := sender.IsKnown && sender.UID == sys.EffectiveUID() && sender.UID != sys.OverflowUID()
	if !isOwn || process == nil || !sys.SharesNamespaces(int(sender.PID)) {
		return false
	}
	// The namespaces were looked up by the peer's pid. If the peer's process has ended since, the
	// kernel may have given the pid to another process.
	isEnded, err := process.IsEnded()
	return err == nil && !isEnded
}

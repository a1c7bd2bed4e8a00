// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/wire"
)

// A Peer is the process at the other end of a connection, as the kernel has verified it.
type Peer struct {
	// HasCredentials says whether PID, UID and GID are known. Over TCP they are unknown.
	HasCredentials bool
	// PID is the process id of the peer; 0 if this process's namespace does not show it.
	PID int
	// UID and GID are the effective user id and group id of the peer's process.
	UID, GID uint32
	// Trusted says whether this side trusts the peer, and so reads its messages in place.
	Trusted bool
	// Address is the address of the peer's socket; it is often empty for a Unix socket.
	Address string
}

// String describes the peer in a form that is fit for a log.
func (p Peer) String() string { return wire.Peer(p).String() }

// A Transport says whether shared memory or a socket carries the messages of a connection.
type Transport struct {
	// IsShared says that shared memory carries the messages. If it is false, the socket does.
	IsShared bool
	// Reason says why the socket carries the messages. It is 0 if shared memory does.
	Reason FallbackReason
}

// String describes the transport in a form that is fit for a log.
func (t Transport) String() string {
	if t.IsShared {
		return "shared memory"
	}
	return "socket (" + t.Reason.String() + ")"
}

// A FallbackReason says why a connection does not use shared memory (SPEC 2.6).
type FallbackReason uint32

// The reasons.
const (
	ReasonPolicy      = FallbackReason(layout.ReasonPolicy)      // a side asks for the socket
	ReasonRemote      = FallbackReason(layout.ReasonRemote)      // the address is TCP
	ReasonMemfd       = FallbackReason(layout.ReasonMemfd)       // the system has no sealed memory
	ReasonMemory      = FallbackReason(layout.ReasonMemory)      // there is no memory for a region
	ReasonDescriptors = FallbackReason(layout.ReasonDescriptors) // descriptors did not get through
	ReasonLimits      = FallbackReason(layout.ReasonLimits)      // more memory than a side maps
	ReasonMap         = FallbackReason(layout.ReasonMap)         // mapping has failed
)

// String returns the reason's name, or its number if it has none.
func (r FallbackReason) String() string { return layout.FallbackReason(r).String() }

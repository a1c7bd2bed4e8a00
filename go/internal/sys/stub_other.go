// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !linux

package sys

import (
	"errors"
	"fmt"
	"time"

	"partywall.test/go/internal/mem"
)

// Region is memory that this system cannot make.
type Region struct{}

// NewRegion fails: only Linux has sealed memory.
func NewRegion(string, uint64) (*Region, error) { return nil, unsupported("sealed memory") }

// Descriptor returns -1, because this system has no regions.
func (*Region) Descriptor() int { return -1 }

// Memory returns memory of no bytes, because this system has no regions.
func (*Region) Memory() mem.Own { return mem.Own{} }

// CloseDescriptor does nothing, because NewRegion always fails.
func (*Region) CloseDescriptor() {}

// Unmap does nothing.
func (*Region) Unmap() error { return nil }

// PeerMap is a mapping of a peer's memory, which this system cannot make.
type PeerMap struct{}

// MapPeer fails: only Linux has sealed memory.
func MapPeer(int, uint64, uint64) (*PeerMap, error) { return nil, unsupported("sealed memory") }

// Memory returns memory of no bytes, because this system cannot map a peer's memory.
func (*PeerMap) Memory() mem.Peer { return mem.Peer{} }

// Unmap does nothing.
func (*PeerMap) Unmap() error { return nil }

// Eventfd is a doorbell that this system does not have.
type Eventfd struct{}

// NewEventfd fails: only Linux has eventfds.
func NewEventfd() (*Eventfd, error) { return nil, unsupported("eventfd") }

// EventfdOf returns a doorbell that cannot be used, because this system has no eventfds.
func EventfdOf(int) *Eventfd { return &Eventfd{} }

// Descriptor returns -1, because this system has no eventfds.
func (*Eventfd) Descriptor() int { return -1 }

// Notify fails: only Linux has eventfds.
func (*Eventfd) Notify() error { return unsupported("eventfd") }

// NotifyEdge fails: only Linux has eventfds.
func NotifyEdge(int) error { return unsupported("eventfd") }

// Drain fails: only Linux has eventfds.
func (*Eventfd) Drain() (bool, error) { return false, unsupported("eventfd") }

// Close does nothing.
func (*Eventfd) Close() {}

// Timerfd is a timer that this system does not have.
type Timerfd struct{}

// NewTimerfd fails: only Linux has timerfds.
func NewTimerfd() (*Timerfd, error) { return nil, unsupported("timerfd") }

// Descriptor returns -1, because this system has no timerfds.
func (*Timerfd) Descriptor() int { return -1 }

// Set does nothing.
func (*Timerfd) Set(time.Duration) {}

// Pidfd refers to a process for ever, which is impossible on this system.
type Pidfd struct{}

// OpenPidfd fails: only Linux has pidfds.
func OpenPidfd(int) (*Pidfd, error) { return nil, unsupported("pidfd") }

// PidfdOf returns a pidfd that cannot be used, because this system has no pidfds.
func PidfdOf(int) *Pidfd { return &Pidfd{} }

// Descriptor returns -1, because this system has no pidfds.
func (*Pidfd) Descriptor() int { return -1 }

// PID fails: only Linux has pidfds.
func (*Pidfd) PID() (int, error) { return 0, unsupported("pidfd") }

// IsEnded fails: only Linux has pidfds.
func (*Pidfd) IsEnded() (bool, error) { return false, unsupported("pidfd") }

// Close does nothing.
func (*Pidfd) Close() {}

// PassCredentials fails: only Linux has SO_PASSCRED.
func PassCredentials(int) error { return unsupported("SO_PASSCRED") }

// PassPidfd fails: only Linux has pidfds.
func PassPidfd(int, bool) error { return unsupported("SO_PASSPIDFD") }

// Send fails: on this system no descriptors are sent over sockets.
func Send(int, []byte, ...int) (int, error) { return 0, unsupported("sendmsg") }

// Receive fails: on this system no descriptors are received over sockets.
func Receive(int, []byte) (Message, error) { return Message{}, unsupported("recvmsg") }

// CheckEventfd fails: only Linux has eventfds.
func CheckEventfd(int) error { return unsupported("eventfd") }

// SetNonblock fails, because on this system no descriptor comes from a peer.
func SetNonblock(int) error { return unsupported("O_NONBLOCK") }

// SetMode fails: on this system a listener sets the mode of a socket file after bind has made it.
func SetMode(int, uint32) error { return unsupported("fchmod of a socket") }

// CloseDescriptor does nothing, because on this system no descriptor comes from a peer.
func CloseDescriptor(int) {}

// EffectiveUID returns the largest number, which is the id of no user.
func EffectiveUID() uint32 { return ^uint32(0) }

// OverflowUID returns the largest number, which is the id of no user.
func OverflowUID() uint32 { return ^uint32(0) }

// SharesNamespaces returns false, because this system has no namespaces to compare.
func SharesNamespaces(int) bool { return false }

// HasCPUQuota returns false, because this system has no control groups.
func HasCPUQuota() bool { return false }

// SharesOneCPU returns false, because this system does not say on which CPUs a process may run.
func SharesOneCPU(int) bool { return false }

func closeDescriptor(int) {}

func unsupported(what string) error {
	return fmt.Errorf("%s: %w", what, errors.ErrUnsupported)
}

// Yield does nothing on this system, where no memory is shared.
func Yield() {}

// SPDX-License-Identifier: MIT OR Apache-2.0

// Package sys wraps the mechanisms of Linux on which shared memory between processes rests: sealed
// memory, eventfds, pidfds, and the ancillary data of a Unix socket.
//
//	Region    memory that this process alone writes: a sealed memfd and its mapping (SPEC 3.1)
//	MapPeer   checks and maps memory that came from the peer
//	Eventfd   a doorbell (SPEC 6.6)
//	Pidfd     names a process, and says when it has ended (SPEC 7.2)
//	Send      bytes and descriptors in one message of a socket
//	Receive   bytes, descriptors and the sender's credentials
//	LockDirectory, SetMode, SharesNamespaces, …  what listening and trust rest on
//
// On other systems each function fails with an error that wraps [errors.ErrUnsupported]: a
// connection then uses the socket transport.
//
// No function waits, except where its comment says so. The package interprets no bytes.
package sys

import (
	"errors"
	"fmt"
)

// GrainBytes is the unit of the sizes of regions and segments in bytes (SPEC 3.1).
const GrainBytes = 65536

// Errors of [MapPeer] and [NewRegion] about shared memory. The errors that these functions return
// wrap them.
var (
	// ErrSize reports a size of shared memory that is zero, no multiple of [GrainBytes], larger
	// than this side maps, or different from the size of the memfd.
	ErrSize = errors.New("not a valid size for shared memory")
	// ErrNotSealed reports a descriptor of the peer that is no memfd, or lacks a seal. The peer
	// could then shrink the memory, so that a read of this process would fault.
	ErrNotSealed = errors.New("the memory is not sealed")
	// ErrNotTmpfs reports memory of the peer on another file system than tmpfs.
	ErrNotTmpfs = errors.New("the memory is not on tmpfs")
	// ErrHoles reports memory of the peer that is not allocated as a whole.
	ErrHoles = errors.New("the memory has holes")
	// ErrUnreadable reports a descriptor of the peer that was not opened for reading.
	ErrUnreadable = errors.New("the memory cannot be read")
	// ErrMap reports that this process could not map the memory (reason 7 of SPEC 2.6).
	ErrMap = errors.New("the memory cannot be mapped")
)

// ErrWouldBlock reports that nothing was done, because that would have blocked. The caller repeats
// the operation once the descriptor is ready.
var ErrWouldBlock = errors.New("the operation would block")

// ErrHungUp reports that the peer has closed its end of the socket.
var ErrHungUp = errors.New("the peer hung up")

// ErrNotPidfd reports a descriptor that is no pidfd.
var ErrNotPidfd = errors.New("the descriptor is no pidfd")

// ErrNotEventfd reports a descriptor of the peer that cannot serve as a doorbell.
var ErrNotEventfd = errors.New("the descriptor is no plain eventfd that does not block")

// IsViolation reports whether err, from [MapPeer], is a breach of SPEC 3.1 by the peer. Other
// errors of MapPeer are failures of this process.
func IsViolation(err error) bool {
	for _, breach := range []error{ErrSize, ErrNotSealed, ErrNotTmpfs, ErrHoles, ErrUnreadable} {
		if errors.Is(err, breach) {
			return true
		}
	}
	return false
}

// Credentials are the process, user and group that sent a message, as the kernel verified them.
type Credentials struct {
	PID int32
	UID uint32
	GID uint32
}

// Message is the result of one call of [Receive].
type Message struct {
	// Bytes is the number of bytes that were received.
	Bytes int
	// Descriptors are the received descriptors, in the order in which they were sent. The caller
	// closes them, even if Receive fails.
	Descriptors []int
	// Credentials are those of the sender of the message; nil if the kernel added none.
	Credentials *Credentials
	// Pidfd is a pidfd of the sender, made by the kernel; nil if the kernel added none.
	Pidfd *Pidfd
	// IsTruncated reports that descriptors were lost, for example because this process may open no
	// more.
	IsTruncated bool
}

// CloseDescriptors closes every descriptor of the message, including the pidfd.
func (m *Message) CloseDescriptors() {
	for _, descriptor := range m.Descriptors {
		closeDescriptor(descriptor)
	}
	m.Descriptors = nil
	if m.Pidfd != nil {
		m.Pidfd.Close()
		m.Pidfd = nil
	}
}

func checkSize(size uint64) error {
	if size == 0 || size%GrainBytes != 0 || size > 1<<62 || uint64(int(size)) != size {
		return fmt.Errorf("%w: %d bytes", ErrSize, size)
	}
	return nil
}

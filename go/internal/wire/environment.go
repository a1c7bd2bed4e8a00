// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"errors"

	"partywall.test/go/internal/handshake"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/sys"
	"syscall"
)

// environment carries out the steps of a handshake that need the operating system, as
// [handshake.Environment] asks for: it admits the peer, and makes and maps regions.
type environment struct {
	settings *Settings
	peer     Peer

	arrived *sys.Pidfd // of the sender of HELLO, from the kernel
	process *sys.Pidfd // of the peer, verified

	own           *ownRegion
	records, room *doorbell
	hasSent       bool // the peer may hold the doorbells of this side

	theirs                  *peerRegion
	theirRecords, theirRoom *sys.Eventfd
}

var _ handshake.Environment = (*environment)(nil)

func (e *environment) Judge(sender handshake.Sender, pidfd int) (bool, error) {
	sent, err := checkPidfd(sender, pidfd)
	if err != nil {
		return false, err
	}
	if e.process = e.arrived; e.process == nil {
		e.process = sent
	} else if sent != nil {
		sent.Close()
	}
	e.arrived = nil
	e.peer.HasCredentials = sender.IsKnown
	e.peer.PID, e.peer.UID, e.peer.GID = int(sender.PID), sender.UID, sender.GID
	if e.settings.Admit != nil {
		if err := e.settings.Admit(e.peer); err != nil {
			return false, handshake.NotAdmitted(err)
		}
	}
	e.peer.Trusted = e.settings.trusts(sender, e.process)
	return e.peer.Trusted, nil
}

// checkPidfd returns the pidfd by which the peer names itself, or nil if the pidfd cannot be
// verified. The error says that the pidfd belongs to another process, or that the peer has died.
func checkPidfd(sender handshake.Sender, descriptor int) (*sys.Pidfd, error) {
	if descriptor < 0 {
		return nil, nil
	}
	pidfd := sys.PidfdOf(descriptor)
	pid, err := pidfd.PID()
	switch {
	case errors.Is(err, sys.ErrNotPidfd):
		pidfd.Close()
		return nil, handshake.BadDescriptor(err)
	case err != nil || pid == 0 || !sender.IsKnown || sender.PID <= 0:
		pidfd.Close()
		return nil, nil
	case pid < 0:
		pidfd.Close()
		return nil, &handshake.Error{Number: layout.ErrorHandshakeHangUp}
	case pid != int(sender.PID):
		pidfd.Close()
		return nil, handshake.BadDescriptor(errors.New("the pidfd is of another process"))
	}
	return pidfd, nil
}

func (e *environment) MakeRegion(session [16]byte) (handshake.Offered, layout.FallbackReason) {
	header := e.settings.region()
	header.SessionID = session
	own, err := newOwnRegion(header, e.settings.Address)
	if err != nil {
		return handshake.Offered{}, reasonOf(err)
	}
	e.own = own
	if e.records, err = newDoorbell(); err == nil {
		e.room, err = newDoorbell()
	}
	if err != nil {
		e.dropOwn()
		return handshake.Offered{}, layout.ReasonDescriptors
	}
	e.hasSent = e.settings.Trust != TrustUntrusted
	return handshake.Offered{
		Region:  own.region.Descriptor(),
		Records: e.records.descriptor,
		Room:    e.room.descriptor,
	}, 0
}

// reasonOf returns the reason for using no shared memory (SPEC 2.6) that describes err, an error of
// making the region of this side.
func reasonOf(err error) layout.FallbackReason {
	switch {
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EFBIG),
		errors.Is(err, sys.ErrMap), errors.Is(err, sys.ErrSize):
		return layout.ReasonMemory
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return layout.ReasonDescriptors
	}
	return layout.ReasonMemfd
}

// MapRegion checks and maps the region of the peer, and closes the region's descriptor.
func (e *environment) MapRegion(region int, want layout.Expectation) (
	layout.FallbackReason, error,
) {
	defer sys.CloseDescriptor(region)
	theirs, err := mapPeerRegion(region, e.settings.MapMax, want)
	var violation layout.Violation
	switch {
	case errors.As(err, &violation):
		return 0, handshake.Broken(violation)
	case sys.IsViolation(err):
		return 0, handshake.BadDescriptor(err)
	case err != nil:
		return layout.ReasonMap, nil
	}
	e.theirs = theirs
	return 0, nil
}

func (e *environment) TakeDoorbells(records, room int) error {
	e.theirRecords, e.theirRoom = sys.EventfdOf(records), sys.EventfdOf(room)
	for _, descriptor := range []int{records, room} {
		switch err := sys.CheckEventfd(descriptor); {
		case errors.Is(err, sys.ErrNotEventfd):
			return handshake.BadDescriptor(err)
		case err != nil:
			return &handshake.Error{Number: layout.ErrorHandshakeSystem, Err: err}
		}
	}
	return nil
}

func (e *environment) Close(descriptor int) { sys.CloseDescriptor(descriptor) }

// drop closes all descriptors that the environment holds, and unmaps all of its memory.
func (e *environment) drop() {
	if e.arrived != nil {
		e.arrived.Close()
	}
	if e.process != nil {
		e.process.Close()
	}
	e.arrived, e.process = nil, nil
	e.dropMemory()
}

// dropMemory closes the descriptors and unmaps the memory that a connection over a socket does not
// need.
func (e *environment) dropMemory() {
	e.dropOwn()
	if e.theirs != nil {
		e.theirs.release()
	}
	e.dropPeersDoorbells()
	e.theirs = nil
}

func (e *environment) dropOwn() {
	if e.own != nil {
		e.own.release()
	}
	if e.records != nil {
		e.records.close()
	}
	if e.room != nil {
		e.room.close()
	}
	e.own, e.records, e.room = nil, nil, nil
}

// replaceDoorbells makes new doorbells for this side if the peer may hold the old ones although the
// connection does not use them as doorbells. The peer could make the old ones blocking, so that
// waking a waiter would block (SPEC 2.8).
func (e *environment) replaceDoorbells() error {
	if !e.hasSent {
		return nil
	}
	records, err := newDoorbell()
	if err != nil {
		return err
	}
	room, err := newDoorbell()
	if err != nil {
		records.close()
		return err
	}
	e.records.close()
	e.room.close()
	e.records, e.room = records, room
	return nil
}

func (e *environment) dropPeersDoorbells() {
	if e.theirRecords != nil {
		e.theirRecords.Close()
		e.theirRoom.Close()
	}
	e.theirRecords, e.theirRoom = nil, nil
}

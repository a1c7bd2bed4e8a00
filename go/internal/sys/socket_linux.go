// SPDX-License-Identifier: MIT OR Apache-2.0

package sys

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// PassCredentials makes the kernel add the sender's credentials to every message that a Unix socket
// receives. Sockets accepted by a listening socket inherit the option.
func PassCredentials(socket int) error {
	if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return fmt.Errorf("SO_PASSCRED: %w", err)
	}
	return nil
}

// PassPidfd sets whether the kernel adds a pidfd of the sender to every message that a Unix socket
// receives. Linux before 6.5 does not know the option; the error then wraps ENOPROTOOPT.
func PassPidfd(socket int, enable bool) error {
	value := 0
	if enable {
		value = 1
	}
	if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PASSPIDFD, value); err != nil {
		return fmt.Errorf("SO_PASSPIDFD: %w", err)
	}
	return nil
}

// Send sends bytes with descriptors in one message, without waiting, and returns how many bytes the
// socket took. The descriptors go with the first byte. The caller keeps them open. The error is
// [ErrWouldBlock] if the socket takes nothing now, and [ErrHungUp] if the peer is gone.
func Send(socket int, bytes []byte, descriptors ...int) (int, error) {
	if len(bytes) == 0 {
		return 0, errors.New("a message without bytes carries no descriptor")
	}
	var ancillary []byte
	if len(descriptors) > 0 {
		ancillary = unix.UnixRights(descriptors...)
	}
	var sent int
	err := retry(func() (err error) {
		const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
		sent, err = unix.SendmsgN(socket, bytes, ancillary, nil, flags)
		return err
	})
	return sent, explain("sendmsg", err)
}

// Receive receives at most len(into) bytes, without waiting, with the descriptors and credentials
// that came. The descriptors have the flag close-on-exec. The error is [ErrWouldBlock] if nothing
// has come, and [ErrHungUp] after the last byte.
func Receive(socket int, into []byte) (Message, error) {
	if len(into) == 0 {
		return Message{}, errors.New("no bytes to receive")
	}
	var ancillary [ancillaryBytesMax]byte
	var bytes, used, flags int
	err := retry(func() (err error) {
		const receive = unix.MSG_DONTWAIT | unix.MSG_CMSG_CLOEXEC
		bytes, used, flags, _, err = unix.Recvmsg(socket, into, ancillary[:], receive)
		return err
	})
	if err != nil {
		return Message{}, explain("recvmsg", err)
	}
	message := Message{Bytes: bytes, IsTruncated: flags&unix.MSG_CTRUNC != 0}
	if err := message.parse(ancillary[:used]); err != nil {
		return message, err
	}
	if bytes == 0 {
		// The end of the stream may still bring a pidfd of the sender, which this code closes,
		// because no caller expects it.
		message.CloseDescriptors()
		return Message{}, ErrHungUp
	}
	return message, nil
}

// parse reads the ancillary data of a received message. Even if it returns an error, the message
// holds each descriptor that was read before, so that the caller can close them.
func (m *Message) parse(ancillary []byte) error {
	for len(ancillary) >= unix.SizeofCmsghdr {
		header, data, rest, err := unix.ParseOneSocketControlMessage(ancillary)
		if err != nil {
			return fmt.Errorf("ancillary data: %w", err)
		}
		ancillary = rest
		if header.Level != unix.SOL_SOCKET {
			continue
		}
		control := unix.SocketControlMessage{Header: header, Data: data}
		switch header.Type {
		case unix.SCM_RIGHTS:
			descriptors, err := unix.ParseUnixRights(&control)
			if err != nil {
				return fmt.Errorf("SCM_RIGHTS: %w", err)
			}
			m.Descriptors = append(m.Descriptors, descriptors...)
		case unix.SCM_CREDENTIALS:
			sender, err := unix.ParseUnixCredentials(&control)
			if err != nil {
				return fmt.Errorf("SCM_CREDENTIALS: %w", err)
			}
			m.Credentials = &Credentials{PID: sender.Pid, UID: sender.Uid, GID: sender.Gid}
		case unix.SCM_PIDFD:
			m.addPidfd(data)
		}
	}
	return nil
}

// addPidfd adds the pidfd of the sender that the kernel has made. If the kernel could make none,
// data holds a negative number.
func (m *Message) addPidfd(data []byte) {
	control := unix.SocketControlMessage{
		Header: unix.Cmsghdr{Level: unix.SOL_SOCKET, Type: unix.SCM_RIGHTS},
		Data:   data,
	}
	descriptors, err := unix.ParseUnixRights(&control)
	if err == nil && len(descriptors) == 1 && descriptors[0] >= 0 && m.Pidfd == nil {
		m.Pidfd = PidfdOf(descriptors[0])
	}
}

// explain converts the error of a system call: EAGAIN becomes ErrWouldBlock, an error that says
// that the peer is gone wraps ErrHungUp, and any other error gets the name of the call.
func explain(call string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EAGAIN):
		return ErrWouldBlock
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		return fmt.Errorf("%w: %s: %w", ErrHungUp, call, err)
	default:
		return fmt.Errorf("%s: %w", call, err)
	}
}

// retry repeats a system call while a signal interrupts it.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// closeDescriptor closes a descriptor. The error of close is ignored, because Linux frees the
// number in any case.
func closeDescriptor(descriptor int) { _ = unix.Close(descriptor) }

// ancillaryBytesMax is the size of the buffer for ancillary data in bytes. It suffices for the 253
// descriptors that the kernel passes in one message at most, and the sender's credentials and
// pidfd.
const ancillaryBytesMax = 2048

// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallshmipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	partywall "partywall.test/go"
)

// peek returns the first eight bytes of a connection without reading them. It waits for the bytes
// for at most the time timeout.
func peek(conn net.Conn, timeout time.Duration) ([]byte, error) {
	if err := conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("partywallshmipc: %T is no socket", conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	begin := make([]byte, len(partywall.Preface))
	count, failed := 0, error(nil)
	err = raw.Read(func(fd uintptr) bool {
		count, _, failed = unix.Recvfrom(int(fd), begin, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		isEarly := failed == unix.EAGAIN || failed == unix.EINTR
		return !isEarly && (count <= 0 || count == len(begin))
	})
	switch {
	case err != nil:
		return nil, err
	case failed != nil:
		return nil, os.NewSyscallError("recvfrom", failed)
	case count == 0:
		return nil, io.ErrUnexpectedEOF
	}
	return begin, conn.SetReadDeadline(time.Time{})
}

// admitShmipc decides whether a client of shmipc-go may connect, by the same rules as partywall for
// its own clients. It also turns off the passing of credentials on the socket, which shmipc-go does
// not expect beside its descriptors.
func admitShmipc(conn net.Conn, own *partywall.Config) error {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var credentials *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 0)
		if failed == nil {
			credentials, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	peer := partywall.Peer{
		HasCredentials: true, PID: int(credentials.Pid), UID: credentials.Uid, GID: credentials.Gid,
		Address: conn.LocalAddr().String(),
	}
	if own != nil && own.Admit != nil {
		return own.Admit(peer)
	}
	// An abstract address has no file permissions, so only processes of the same user are admitted
	// there.
	if strings.HasPrefix(peer.Address, "@") && peer.UID != uint32(os.Geteuid()) {
		return fmt.Errorf("%v: only this user is admitted on an abstract name", peer)
	}
	return nil
}

func listen(config *ListenerConfig) (net.Listener, error) {
	network, path := config.Network, config.ListenPath
	mode := uint32(config.Partywall.SocketMode.Perm())
	if mode == 0 {
		mode = 0o600
	}
	bind := net.ListenConfig{Control: func(network, address string, raw syscall.RawConn) error {
		if network != "unix" {
			return nil
		}
		// The mode is set on the socket before it is bound, and becomes the mode of the socket
		// file.
		var failed error
		err := raw.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), mode) })
		return errors.Join(err, failed, partywall.PassCredentials(network, address, raw))
	}}
	if network == "tcp" {
		address, err := net.ResolveTCPAddr(network, path)
		if err != nil {
			return nil, err
		}
		if !address.IP.IsLoopback() && !config.Partywall.AllowRemote {
			return nil, fmt.Errorf("partywallshmipc: %s is reached from other hosts, which "+
				"Partywall.AllowRemote has to allow", path)
		}
	}
	if network != "unix" || strings.HasPrefix(path, "@") {
		return bind.Listen(context.Background(), network, path)
	}
	return listenPath(&bind, path)
}

// listenPath listens at a path. A socket file on which no process listens is replaced. A lock of
// the directory keeps two listeners from replacing one file at a time (SPEC 2.1).
func listenPath(bind *net.ListenConfig, path string) (net.Listener, error) {
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer directory.Close() // also ends the lock
	if err := unix.Flock(int(directory.Fd()), unix.LOCK_EX); err != nil {
		return nil, os.NewSyscallError("flock", err)
	}
	listener, err := bind.Listen(context.Background(), "unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return listener, err
	}
	info, statErr := os.Lstat(path)
	if statErr != nil || info.Mode().Type() != os.ModeSocket {
		return nil, err
	}
	conn, dialErr := net.DialTimeout("unix", path, time.Second)
	if dialErr == nil {
		_ = conn.Close()
	}
	if !errors.Is(dialErr, syscall.ECONNREFUSED) {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return bind.Listen(context.Background(), "unix", path)
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/sys"
)

// socketFile is the file of a Unix listener's socket. The listener removes the file when it closes,
// unless another socket has replaced it.
type socketFile struct {
	path string
	info fs.FileInfo // nil of an abstract name
}

// listenUnix listens at a path or an abstract name. A socket file on which no process listens is
// replaced. A lock of the directory keeps two listeners from replacing one file at the same time
// (SPEC 2.1).
func listenUnix(a Address, mode fs.FileMode) (*net.UnixListener, socketFile, error) {
	if a.IsAbstract() {
		listener, err := bind(a.Name, mode)
		if err != nil {
			return nil, socketFile{}, listenFailure(err)
		}
		return listener, socketFile{}, nil
	}
	directory, err := lockDirectory(filepath.Dir(a.Name))
	if err != nil {
		return nil, socketFile{}, listenFailure(err)
	}
	if directory != nil {
		defer directory.Close()
	}
	listener, err := bind(a.Name, mode)
	for range takeOversMax {
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
		if err := removeStale(a.Name, directory != nil); err != nil {
			return nil, socketFile{}, err
		}
		listener, err = bind(a.Name, mode)
	}
	if err != nil {
		return nil, socketFile{}, listenFailure(err)
	}
	info, err := os.Lstat(a.Name)
	if err != nil {
		_ = listener.Close()
		return nil, socketFile{}, listenFailure(err)
	}
	return listener, socketFile{a.Name, info}, nil
}

// lockDirectory locks a directory. If another process holds the lock for longer than lockTime, the
// result is nil.
func lockDirectory(path string) (*os.File, error) {
	end := time.Now().Add(lockTime)
	for {
		directory, err := sys.LockDirectory(path)
		if !errors.Is(err, sys.ErrWouldBlock) {
			return directory, err
		}
		if time.Now().After(end) {
			return nil, nil
		}
		time.Sleep(retryTime)
	}
}

// bind makes a Unix socket that listens at name. Its file has the permission bits mode from the
// moment it exists.
func bind(name string, mode fs.FileMode) (*net.UnixListener, error) {
	config := net.ListenConfig{Control: func(network, _ string, raw syscall.RawConn) error {
		if err := passCredentials(network, "", raw); err != nil || runtime.GOOS != "linux" {
			return err
		}
		var failure error
		err := raw.Control(func(fd uintptr) {
			failure = sys.SetMode(int(fd), uint32(mode.Perm()))
		})
		return errors.Join(err, failure)
	}}
	listener, err := config.Listen(context.Background(), "unix", name)
	if err != nil {
		return nil, err
	}
	unixListener, ok := listener.(*net.UnixListener)
	if !ok {
		return nil, errors.New("no Unix listener")
	}
	unixListener.SetUnlinkOnClose(false)
	return unixListener, nil
}

// removeStale removes a socket file if no process listens on it any more.
func removeStale(path string, isLocked bool) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return listenFailure(err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return &Failure{
			Number: layout.ErrorListeningOnAFile,
			Text:   path + " exists and is no socket: move it away, or choose another path",
		}
	}
	conn, err := net.DialTimeout("unix", path, lockTime)
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return &Failure{
			Number: layout.ErrorAddressInUse,
			Text:   path + " is in use: stop the process that listens there, or choose another path",
		}
	}
	if !isLocked {
		return &Failure{Number: layout.ErrorDirectoryLocked}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return listenFailure(err)
	}
	return nil
}

// remove removes the socket file, unless another file has replaced it.
func (f socketFile) remove() {
	if f.info == nil {
		return
	}
	directory, err := lockDirectory(filepath.Dir(f.path))
	if err == nil && directory != nil {
		defer directory.Close()
	}
	if info, err := os.Lstat(f.path); err == nil && os.SameFile(info, f.info) {
		_ = os.Remove(f.path)
	}
}

// listenFailure converts an error of listening to a [Failure], which has its number of SPEC 17.
func listenFailure(err error) error {
	failure := &Failure{Number: layout.ErrorListeningFailed, Err: err}
	var lookup *net.DNSError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		failure.Number = layout.ErrorAddressInUse
	case errors.Is(err, fs.ErrPermission):
		failure.Number = layout.ErrorListeningDenied
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		failure.Number = layout.ErrorNoDirectory
	case errors.As(err, &lookup):
		failure.Number = layout.ErrorAddressUnresolved
	case isDescriptorLimit(err):
		failure.Number = layout.ErrorDescriptorLimit
	}
	return failure
}

const (
	// takeOversMax bounds how often a listener removes a stale socket file and tries again, since
	// another process may bind the path in between.
	takeOversMax = 3
	// lockTime is the longest time for which a listener waits for the lock of the socket's
	// directory.
	lockTime = 2 * time.Second
)

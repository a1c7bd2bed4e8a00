// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/sys"
)

// Dial connects to a listener and performs the handshake. It gives up after the time timeout, or
// when ctx is done.
func Dial(ctx context.Context, a Address, s *Settings, timeout time.Duration) (*Connection, error) {
	deadline := time.Now().Add(timeout)
	if end, ok := ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	conn, err := connect(ctx, a, deadline)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		_ = conn.Close()
		return nil, &Failure{Number: layout.ErrorConnectingFailed, Err: err}
	}
	handshake, err := NewHandshake(conn, s)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	c, err := handshake.Run()
	isLate := !stop()
	if err == nil && isLate {
		c.Interrupt()
		c.Close()
		return nil, ctx.Err()
	}
	if isLate && errors.Is(ctx.Err(), context.Canceled) {
		return nil, ctx.Err()
	}
	return c, err
}

// connect connects a socket to the address. While the backlog of a Unix listener is full, connect
// tries again.
func connect(ctx context.Context, a Address, deadline time.Time) (net.Conn, error) {
	dialer := net.Dialer{Deadline: deadline, Control: passCredentials}
	for {
		conn, err := dialer.DialContext(ctx, a.Network, a.Name)
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, syscall.EAGAIN) || !a.IsUnix() {
			return nil, connectFailure(a, err)
		}
		if time.Now().Add(retryTime).After(deadline) {
			return nil, &Failure{Number: layout.ErrorConnectingTimedOut, Err: err}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(retryTime):
		}
	}
}

// passCredentials makes the kernel add the sender's credentials to each message that a Unix socket
// receives. It must be called before the socket connects or listens.
func passCredentials(network, _ string, raw syscall.RawConn) error {
	if network != "unix" || runtime.GOOS != "linux" {
		return nil
	}
	var failure error
	if err := raw.Control(func(fd uintptr) { failure = sys.PassCredentials(int(fd)) }); err != nil {
		return err
	}
	return failure
}

// connectFailure converts an error of connecting to the address to a [Failure], which has its
// number of SPEC 17.
func connectFailure(a Address, err error) error {
	failure := &Failure{Number: layout.ErrorConnectingFailed, Err: err}
	var lookup *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.As(err, &lookup):
		failure.Number = layout.ErrorAddressUnresolved
	case errors.Is(err, fs.ErrNotExist):
		failure.Number = layout.ErrorNoSocket
	case a.IsFile() && isOtherFile(a.Name):
		failure.Number = layout.ErrorConnectingToAFile
	case errors.Is(err, syscall.ECONNREFUSED):
		failure.Number = layout.ErrorNoListener
	case errors.Is(err, fs.ErrPermission):
		failure.Number = layout.ErrorConnectingDenied
	case isDescriptorLimit(err):
		failure.Number = layout.ErrorDescriptorLimit
	case errors.As(err, &timeout) && timeout.Timeout():
		failure.Number = layout.ErrorConnectingTimedOut
	}
	return failure
}

// isOtherFile reports whether the path is that of a file which is no socket.
func isOtherFile(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSocket == 0
}

func isDescriptorLimit(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// retryTime is the pause between two attempts to connect to a listener whose backlog is full, or to
// lock a directory.
const retryTime = 5 * time.Millisecond

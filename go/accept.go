// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"context"
	"net"
	"syscall"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/sys"
	"partywall.test/go/internal/wire"
)

// Preface is the first eight bytes that a connector sends (SPEC 2.1). A listener that serves other
// protocols on its address compares them before it calls [AcceptSession].
const Preface = layout.HelloTag

// AcceptSession makes a session on conn, a socket that the caller has accepted and from which it
// has read nothing. The function takes conn over, and closes it after an error. The handshake is
// given up when ctx ends or HandshakeTimeout of config passes; if config is nil, it is the default
// configuration. If conn is a Unix socket, its listener must have used [PassCredentials].
func AcceptSession(ctx context.Context, conn net.Conn, config *Config) (*Session, error) {
	local := conn.LocalAddr()
	a, err := wire.ParseAddress(local.Network() + ":" + local.String())
	var settings wire.Settings
	if err == nil {
		settings, err = config.sessionSettings(layout.RoleAcceptor, a)
	}
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(config.handshakeTimeout()))
	}
	if err != nil {
		_ = conn.Close()
		return nil, wrap("accept", err)
	}
	handshake, err := wire.NewHandshake(conn, &settings)
	if err != nil {
		return nil, wrap("accept", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	connection, err := handshake.Run()
	if !stop() && ctx.Err() != nil {
		if err == nil {
			connection.Interrupt()
			connection.Close()
		}
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, wrap("accept", err)
	}
	return newSession(connection, &settings, config, a), nil
}

// PassCredentials is a value for the field Control of a net.ListenConfig. It prepares the sockets
// of a Unix listener for [AcceptSession]: the kernel then names the process that sends the first
// bytes.
func PassCredentials(network, _ string, socket syscall.RawConn) error {
	if network != "unix" {
		return nil
	}
	var failed error
	err := socket.Control(func(fd uintptr) { failed = sys.PassCredentials(int(fd)) })
	if err == nil {
		err = failed
	}
	return wrap("listen", err)
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"context"
	"net"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/wire"
)

// A ChannelListener accepts channels. Any number of goroutines may use it.
type ChannelListener struct {
	listener *wire.Listener
	policy   BackPressure
}

// ListenChannel listens for channels on an address. If config is nil, it is the default
// configuration. A socket file on which no process listens any more is replaced.
func ListenChannel(address string, config *Config) (*ChannelListener, error) {
	a, err := wire.ParseAddress(address)
	if err != nil {
		return nil, wrap("listen", err)
	}
	settings, err := config.channelSettings(layout.RoleAcceptor, a)
	if err != nil {
		return nil, wrap("listen", err)
	}
	listener, err := wire.Listen(a, settings, config.listenOptions())
	if err != nil {
		return nil, wrap("listen", err)
	}
	return &ChannelListener{listener, config.backPressure()}, nil
}

// Accept waits for the next channel. If a peer is refused or breaks a rule, Accept goes on waiting.
// Only ctx and [ChannelListener.Close] make it fail.
func (l *ChannelListener) Accept(ctx context.Context) (*Channel, error) {
	connection, err := l.listener.Accept(ctx)
	if err != nil {
		return nil, wrap("accept", err)
	}
	return newChannel(connection, l.policy), nil
}

// Addr returns the address of the listener. If the system has chosen its port, the address has this
// port.
func (l *ChannelListener) Addr() net.Addr { return Addr{l.listener.Address()} }

// Close closes the listener, and removes its socket file unless another listener has replaced the
// file. Accepted channels stay open.
func (l *ChannelListener) Close() error { return wrap("close", l.listener.Close()) }

// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"context"
	"net"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/wire"
)

// An Addr is the address of a listener. Its network is "partywall", for each transport.
type Addr struct {
	address wire.Address
}

var _ net.Addr = Addr{}

// ParseAddr reads an address: "unix:/path", "unix:@name" or "tcp:host:port".
func ParseAddr(text string) (Addr, error) {
	address, err := wire.ParseAddress(text)
	if err != nil {
		return Addr{}, wrap("parse", err)
	}
	return Addr{address}, nil
}

// Network returns "partywall".
func (Addr) Network() string { return networkName }

// String returns the address as [ParseAddr] reads it.
func (a Addr) String() string { return a.address.String() }

// DialChannel connects to a listener of channels. It gives up when ctx is done or HandshakeTimeout
// of config has passed. If config is nil, it is the default configuration.
func DialChannel(ctx context.Context, address string, config *Config) (*Channel, error) {
	a, err := wire.ParseAddress(address)
	if err != nil {
		return nil, wrap("dial", err)
	}
	settings, err := config.settings(layout.RoleConnector, layout.ServiceChannel, a)
	if err != nil {
		return nil, wrap("dial", err)
	}
	settings.NewChecker = newChecker
	connection, err := wire.Dial(ctx, a, &settings, config.handshakeTimeout())
	if err != nil {
		return nil, wrap("dial", err)
	}
	return newChannel(connection, config.backPressure()), nil
}

func (c *Config) backPressure() BackPressure {
	if c == nil {
		return BackPressureBlock
	}
	return c.BackPressure
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"context"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/wire"
)

// DialChannel connects to a listener of channels. Connecting is given up when ctx is done or
// HandshakeTimeout of config has passed. If config is nil, it is the default configuration.
func DialChannel(ctx context.Context, address string, config *Config) (*Channel, error) {
	a, err := wire.ParseAddress(address)
	if err != nil {
		return nil, wrap("dial", err)
	}
	settings, err := config.channelSettings(layout.RoleConnector, a)
	if err != nil {
		return nil, wrap("dial", err)
	}
	connection, err := wire.Dial(ctx, a, &settings, config.handshakeTimeout())
	if err != nil {
		return nil, wrap("dial", err)
	}
	return newChannel(connection, config.backPressure()), nil
}

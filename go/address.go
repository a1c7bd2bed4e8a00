// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"net"

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

// Network returns "partywall", for an address of each transport.
func (Addr) Network() string { return networkName }

// String returns the text of the address, from which [ParseAddr] makes the same address.
func (a Addr) String() string { return a.address.String() }

// networkName is the network of addresses and of errors. It is never "unix", because some servers
// delete the file at the path of an address whose network is "unix".
const networkName = "partywall"

// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import (
	"net"
	"strings"

	partywall "partywall.test/go"
)

// An endpoint is an address, and whether its messages are lines over a plain socket.
type endpoint struct {
	address string
	isPlain bool
}

func parseEndpoint(text string) (endpoint, error) {
	address, isPlain := strings.CutPrefix(text, plainPrefix)
	_, err := partywall.ParseAddr(address)
	return endpoint{address, isPlain}, err
}

// String returns the text of the endpoint, from which parseEndpoint makes the same endpoint.
func (e endpoint) String() string {
	if e.isPlain {
		return plainPrefix + e.address
	}
	return e.address
}

// dial connects to an endpoint whose messages are lines over a plain socket.
func (e endpoint) dial() (net.Conn, error) {
	network, name, _ := strings.Cut(e.address, ":")
	return net.DialTimeout(network, name, timeoutDefault)
}

// isTCP reports whether the endpoint is a plain TCP socket. The table compares all other endpoints
// with such a one.
func (e endpoint) isTCP() bool { return e.isPlain && strings.HasPrefix(e.address, "tcp:") }

// plainPrefix is the beginning of the text of an endpoint whose messages are lines over a plain
// socket.
const plainPrefix = "plain:"

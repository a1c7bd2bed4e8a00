// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallgrpc

import (
	"context"
	"net"

	"google.golang.org/grpc"

	partywall "partywall.test/go"
)

// NewClient returns a client of the server that listens on the address, as "unix:/run/app.sock". It
// connects with the dialer, which the caller closes after all of its clients. Without further
// options the client has the credentials of [NewCredentials] with nil, and its requests have the
// authority "localhost".
func NewClient(
	address string, dialer *partywall.Dialer, options ...grpc.DialOption,
) (*grpc.ClientConn, error) {
	if _, err := partywall.ParseAddr(address); err != nil {
		return nil, err
	}
	all := append([]grpc.DialOption{
		WithDialer(dialer),
		grpc.WithTransportCredentials(NewCredentials(nil)),
		// The address is not an authority of HTTP: servers in other languages refuse its slashes.
		grpc.WithAuthority("localhost"),
	}, options...)
	return grpc.NewClient(passthrough+address, all...)
}

// WithDialer returns the option with which a client connects by the dialer. The client's resolver
// has to return addresses of package partywall, as "passthrough:///unix:/run/app.sock" does.
func WithDialer(dialer *partywall.Dialer) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, protocol, address)
	})
}

// passthrough begins a target whose rest the resolver returns unchanged.
const passthrough = "passthrough:///"

// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallgrpc

import (
	"context"
	"net"

	"google.golang.org/grpc"

	partywall "partywall.test/go"
)

// NewClient returns a client of the gRPC server that listens on the address, such as
// "unix:/run/app.sock". The dialer makes the connections; the caller closes the dialer after all of
// its clients. Without further options the client has the credentials of [NewCredentials] with nil,
// and its requests have the authority "localhost".
func NewClient(
	address string, dialer *partywall.Dialer, options ...grpc.DialOption,
) (*grpc.ClientConn, error) {
	if _, err := partywall.ParseAddr(address); err != nil {
		return nil, err
	}
	all := append([]grpc.DialOption{
		WithDialer(dialer),
		grpc.WithTransportCredentials(NewCredentials(nil)),
		// The authority is not the address: servers in other languages refuse an authority with
		// slashes.
		grpc.WithAuthority("localhost"),
	}, options...)
	return grpc.NewClient(passthrough+address, all...)
}

// WithDialer returns the option with which a client connects by the dialer. The client's resolver
// has to return addresses of package partywall. The target "passthrough:///unix:/run/app.sock" has
// such a resolver.
func WithDialer(dialer *partywall.Dialer) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, protocol, address)
	})
}

// passthrough is the beginning of a gRPC target whose remainder is passed to the dialer unchanged.
const passthrough = "passthrough:///"

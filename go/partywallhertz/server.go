// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallhertz

import (
	"context"
	"net"

	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/cloudwego/hertz/pkg/network/standard"

	partywall "partywall.test/go"
)

// ServerOptions returns the options of a server that serves the listener. The default transporter
// of Hertz needs the descriptor of a socket, so they choose the standard one.
func ServerOptions(listener *partywall.Listener) []config.Option {
	return []config.Option{
		server.WithListener(listener),
		server.WithTransport(standard.NewTransporter),
		server.WithOnAccept(withPeer),
	}
}

// PeerFromContext returns the process that made the request of a handler, as the kernel has
// verified it. It reports false if the server does not have the options of [ServerOptions].
func PeerFromContext(ctx context.Context) (partywall.Peer, bool) {
	peer, ok := ctx.Value(peerKey{}).(partywall.Peer)
	return peer, ok
}

// withPeer returns the context of the requests of a connection.
func withPeer(conn net.Conn) context.Context {
	stream, ok := conn.(*partywall.Stream)
	if !ok {
		return context.Background()
	}
	return context.WithValue(context.Background(), peerKey{}, stream.Peer())
}

// peerKey is the key of the peer in the context of a request.
type peerKey struct{}

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

// ServerOptions returns the options of a Hertz server that serves the listener. They choose the
// standard transporter of Hertz, because the default one needs the descriptor of a socket.
func ServerOptions(listener *partywall.Listener) []config.Option {
	return []config.Option{
		server.WithListener(listener),
		server.WithTransport(standard.NewTransporter),
		server.WithOnAccept(withPeer),
	}
}

// PeerFromContext returns the process that made the request of a handler, as the kernel has
// verified it. The second result is false if the server does not have the options of
// [ServerOptions].
func PeerFromContext(ctx context.Context) (partywall.Peer, bool) {
	peer, ok := ctx.Value(peerKey{}).(partywall.Peer)
	return peer, ok
}

// withPeer returns the context for the requests of a connection. The context holds the peer, which
// [PeerFromContext] returns.
func withPeer(conn net.Conn) context.Context {
	stream, ok := conn.(*partywall.Stream)
	if !ok {
		return context.Background()
	}
	return context.WithValue(context.Background(), peerKey{}, stream.Peer())
}

// peerKey is the key under which the context of a request holds the peer.
type peerKey struct{}

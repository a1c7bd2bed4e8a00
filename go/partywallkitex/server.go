// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallkitex

import (
	"context"
	"net"

	"github.com/cloudwego/kitex/pkg/remote/trans/detection"
	"github.com/cloudwego/kitex/pkg/remote/trans/gonet"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/server"

	partywall "partywall.test/go"
)

// ServerOptions returns the options of a Kitex server that serves the listener. The first bytes of
// a connection decide whether its calls use TTHeader or gRPC.
func ServerOptions(listener *partywall.Listener) []server.Option {
	return []server.Option{
		server.WithListener(peerListener{listener}),
		server.WithTransServerFactory(gonet.NewTransServerFactory()),
		server.WithTransHandlerFactory(detection.NewSvrTransHandlerFactory(
			gonet.NewSvrTransHandlerFactory(), grpcHandlerFactory{})),
	}
}

// PeerFromContext returns the process that has made a call, as the kernel has verified it. The
// context is that of a handler or of a middleware. The second result is false if the server does
// not have the options of [ServerOptions].
func PeerFromContext(ctx context.Context) (partywall.Peer, bool) {
	info := rpcinfo.GetRPCInfo(ctx)
	if info == nil || info.From() == nil {
		return partywall.Peer{}, false
	}
	address, ok := info.From().Address().(streamAddr)
	if !ok {
		return partywall.Peer{}, false
	}
	return address.stream.Peer(), true
}

// A peerListener accepts streams whose remote address contains the stream itself, because Kitex
// shows nothing else of a connection to a handler.
type peerListener struct{ *partywall.Listener }

func (l peerListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return peerConn{c.(*partywall.Stream)}, nil
}

// A peerConn is a stream whose remote address contains the stream itself.
type peerConn struct{ *partywall.Stream }

func (c peerConn) RemoteAddr() net.Addr { return streamAddr{c.Stream.RemoteAddr(), c.Stream} }

// A streamAddr is the address of a listener, and a stream that it has accepted.
type streamAddr struct {
	net.Addr
	stream *partywall.Stream
}

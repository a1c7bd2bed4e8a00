// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallkitex

import (
	"bytes"
	"context"
	"errors"
	"net"

	"github.com/cloudwego/gopkg/bufiox"
	"github.com/cloudwego/kitex/pkg/endpoint"
	"github.com/cloudwego/kitex/pkg/remote"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/grpc"

	partywall "partywall.test/go"
)

// A grpcHandlerFactory makes handlers of connections that begin with the preface of HTTP/2. Those
// of Kitex look for the preface in the buffers of netpoll alone.
type grpcHandlerFactory struct{}

// NewTransHandler returns a handler for a server.
func (grpcHandlerFactory) NewTransHandler(
	option *remote.ServerOption,
) (remote.ServerTransHandler, error) {
	handler, err := nphttp2.NewSvrTransHandlerFactory().NewTransHandler(option)
	if err != nil {
		return nil, err
	}
	return grpcHandler{handler}, nil
}

// A grpcHandler is a handler of Kitex for gRPC over a stream.
type grpcHandler struct{ remote.ServerTransHandler }

var (
	_ remote.InvokeHandleFuncSetter = grpcHandler{}
	_ remote.GracefulShutdown       = grpcHandler{}
)

// ProtocolMatch returns an error if the connection does not begin with the preface of HTTP/2.
func (grpcHandler) ProtocolMatch(_ context.Context, conn net.Conn) error {
	buffered, ok := conn.(interface{ Reader() *bufiox.DefaultReader })
	if !ok {
		return errNotGRPC
	}
	begin, err := buffered.Reader().Peek(len(prefaceBegin))
	if err != nil {
		return err
	}
	if !bytes.Equal(begin, prefaceBegin) {
		return errNotGRPC
	}
	return nil
}

// OnActive starts gRPC on the connection, without its Close.
func (h grpcHandler) OnActive(ctx context.Context, conn net.Conn) (context.Context, error) {
	address, ok := conn.RemoteAddr().(streamAddr)
	if !ok {
		return nil, errNotGRPC
	}
	return h.ServerTransHandler.OnActive(ctx, grpcConn{conn, address.stream})
}

// OnRead serves the connection until it ends, and then frees its transport. The server of package
// gonet does not say when a connection ends.
func (h grpcHandler) OnRead(ctx context.Context, conn net.Conn) error {
	defer h.OnInactive(ctx, conn)
	return h.ServerTransHandler.OnRead(ctx, conn)
}

// SetInvokeHandleFunc sets the function that runs the middlewares and the method.
func (h grpcHandler) SetInvokeHandleFunc(call endpoint.Endpoint) {
	if setter, ok := h.ServerTransHandler.(remote.InvokeHandleFuncSetter); ok {
		setter.SetInvokeHandleFunc(call)
	}
}

// GracefulShutdown asks the clients for no more calls.
func (h grpcHandler) GracefulShutdown(ctx context.Context) error {
	if handler, ok := h.ServerTransHandler.(remote.GracefulShutdown); ok {
		return handler.GracefulShutdown(ctx)
	}
	return nil
}

// A grpcConn is a connection of the server of package gonet, whose own Close releases the buffer.
// gRPC closes while another goroutine reads, so here Close closes the stream alone. The server
// releases the buffer once OnRead has returned.
type grpcConn struct {
	net.Conn
	stream *partywall.Stream
}

// Close closes the stream.
func (c grpcConn) Close() error { return c.stream.Close() }

var (
	// prefaceBegin is the first eight bytes of HTTP/2: no more than each request of TTHeader has.
	prefaceBegin = grpc.ClientPreface[:8]
	errNotGRPC   = errors.New("partywallkitex: the connection does not begin as HTTP/2")
)

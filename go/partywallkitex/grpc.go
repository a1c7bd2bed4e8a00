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

// A grpcHandlerFactory makes handlers for connections that begin with the preface of HTTP/2. It
// replaces the handlers of Kitex, which can only find the preface in the buffers of netpoll.
type grpcHandlerFactory struct{}

// NewTransHandler returns the handler of a server's gRPC connections, as Kitex asks for.
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

// ProtocolMatch returns an error unless the connection begins with the preface of HTTP/2.
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

// OnActive starts gRPC on a new connection. gRPC gets the connection with another Close, which does
// not release the buffer of received bytes.
func (h grpcHandler) OnActive(ctx context.Context, conn net.Conn) (context.Context, error) {
	address, ok := conn.RemoteAddr().(streamAddr)
	if !ok {
		return nil, errNotGRPC
	}
	return h.ServerTransHandler.OnActive(ctx, grpcConn{conn, address.stream})
}

// OnRead serves the connection with gRPC until it ends, and then frees the state of gRPC for it.
// That is done here because the server of package gonet does not say when a connection ends.
func (h grpcHandler) OnRead(ctx context.Context, conn net.Conn) error {
	defer h.OnInactive(ctx, conn)
	return h.ServerTransHandler.OnRead(ctx, conn)
}

// SetInvokeHandleFunc sets the function with which Kitex runs its middlewares and the method of a
// call.
func (h grpcHandler) SetInvokeHandleFunc(call endpoint.Endpoint) {
	if setter, ok := h.ServerTransHandler.(remote.InvokeHandleFuncSetter); ok {
		setter.SetInvokeHandleFunc(call)
	}
}

// GracefulShutdown asks the clients to make no more calls.
func (h grpcHandler) GracefulShutdown(ctx context.Context) error {
	if handler, ok := h.ServerTransHandler.(remote.GracefulShutdown); ok {
		return handler.GracefulShutdown(ctx)
	}
	return nil
}

// A grpcConn is a connection of the server of package gonet, with another Close: it closes the
// stream alone. The original Close also releases the buffer of received bytes, which another
// goroutine of gRPC may still read. The server releases the buffer once OnRead has returned.
type grpcConn struct {
	net.Conn
	stream *partywall.Stream
}

// Close closes the stream of the connection, and does not release the buffer of received bytes.
func (c grpcConn) Close() error { return c.stream.Close() }

var (
	// prefaceBegin is the first eight bytes of the preface of HTTP/2. A request of TTHeader has at
	// least as many bytes, so it is safe to wait for eight bytes.
	prefaceBegin = grpc.ClientPreface[:8]
	errNotGRPC   = errors.New("partywallkitex: the connection does not begin as HTTP/2")
)

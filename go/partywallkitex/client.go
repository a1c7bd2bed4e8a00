// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallkitex

import (
	"context"
	"net"
	"time"

	"github.com/cloudwego/gopkg/bufiox"
	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/remote"
	"github.com/cloudwego/kitex/pkg/remote/trans/gonet"

	partywall "partywall.test/go"
)

// ClientOptions returns the options of a client that calls the listeners at the addresses, such as
// "unix:/run/app.sock". Without an address, the client needs a resolver. The caller closes the
// dialer after its clients.
func ClientOptions(dialer *partywall.Dialer, addresses ...string) []client.Option {
	options := []client.Option{
		client.WithDialer(NewDialer(dialer)),
		client.WithTransHandlerFactory(gonet.NewCliTransHandlerFactory()),
	}
	if len(addresses) > 0 {
		options = append(options, client.WithHostPorts(addresses...))
	}
	return options
}

// NewDialer returns the dialer of [ClientOptions]. An address that a resolver gives is one that
// partywall.ParseAddr reads, or the rest of one after the network: "/run/app.sock" of "unix".
func NewDialer(dialer *partywall.Dialer) remote.Dialer { return kitexDialer{dialer} }

type kitexDialer struct{ dialer *partywall.Dialer }

// DialTimeout opens a stream to the address. A timeout of 0 is none.
func (d kitexDialer) DialTimeout(
	network, address string, timeout time.Duration,
) (net.Conn, error) {
	if _, err := partywall.ParseAddr(address); err != nil {
		address = network + ":" + address
	}
	ctx := context.Background()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	c, err := d.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return newClientConn(c.(*partywall.Stream), network), nil
}

// A clientConn is a stream with the buffers that Kitex reads and writes.
//
// Close leaves the buffers to the garbage collector: with gRPC, another goroutine may read at that
// moment, and a released buffer has a new owner.
type clientConn struct {
	net.Conn
	stream  *partywall.Stream // the Conn
	address dialedAddr
	in      *bufiox.DefaultReader
	out     *bufiox.DefaultWriter
}

var _ remote.IsActive = (*clientConn)(nil)

func newClientConn(stream *partywall.Stream, network string) *clientConn {
	return &clientConn{
		Conn: stream, stream: stream, address: dialedAddr{stream.RemoteAddr(), network},
		in: bufiox.NewDefaultReader(stream), out: bufiox.NewDefaultWriter(stream),
	}
}

// Reader returns the buffer of unread bytes.
func (c *clientConn) Reader() *bufiox.DefaultReader { return c.in }

// Writer returns the buffer of bytes that the next Flush sends.
func (c *clientConn) Writer() *bufiox.DefaultWriter { return c.out }

// Read reads what the buffer has, and otherwise what the stream has.
func (c *clientConn) Read(b []byte) (int, error) { return c.in.Read(b) }

// IsActive reports whether the stream and its session still take requests. They do not once the
// server has closed the stream or has died, or while it goes away. A pool of long connections drops
// such a stream before the next call.
func (c *clientConn) IsActive() bool {
	return c.stream.SendErr() == nil && !c.stream.Session().IsGoingAway()
}

// RemoteAddr returns the address of the listener, under the network with which Kitex has dialed. A
// pool of long connections keeps a connection under that network, and closes one of another.
func (c *clientConn) RemoteAddr() net.Addr { return &c.address }

// A dialedAddr is the address of a listener, with the network of a dialer of Kitex.
type dialedAddr struct {
	net.Addr
	network string
}

// Network returns the network that Kitex has passed to the dialer.
func (a *dialedAddr) Network() string { return a.network }

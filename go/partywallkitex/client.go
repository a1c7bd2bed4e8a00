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

// ClientOptions returns the options of a Kitex client that calls the listeners at the addresses,
// such as "unix:/run/app.sock". Without an address, the client needs a resolver. The caller closes
// the dialer after its clients.
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

// NewDialer returns the Kitex dialer that [ClientOptions] uses. An address that a resolver gives is
// in the form that partywall.ParseAddr reads, such as "unix:/run/app.sock", or a network and the
// rest of that form: "unix" and "/run/app.sock".
func NewDialer(dialer *partywall.Dialer) remote.Dialer { return kitexDialer{dialer} }

type kitexDialer struct{ dialer *partywall.Dialer }

// DialTimeout opens a stream to the address. A timeout of 0 means that there is none.
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

// A clientConn is the connection of a Kitex client: a stream with the buffers that Kitex reads and
// writes.
//
// Close does not return the buffers to the pool of Kitex, where they could get a new owner: with
// gRPC, another goroutine may still read at that moment. The garbage collector frees them.
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

// Reader returns the buffer of received bytes that are unread.
func (c *clientConn) Reader() *bufiox.DefaultReader { return c.in }

// Writer returns the buffer of bytes that the next Flush sends.
func (c *clientConn) Writer() *bufiox.DefaultWriter { return c.out }

// Read copies unread bytes of the buffer to b, or reads from the stream if the buffer has none.
func (c *clientConn) Read(b []byte) (int, error) { return c.in.Read(b) }

// IsActive reports whether the stream and its session still take requests. The result is false once
// the server has closed the stream, has died, or has asked for no more streams. A pool of long
// connections drops such a stream before the next call.
func (c *clientConn) IsActive() bool {
	return c.stream.SendErr() == nil && !c.stream.Session().IsGoingAway()
}

// RemoteAddr returns the address of the listener, with the network that Kitex passed when it
// dialed. A pool of long connections finds a connection by this network, and closes connections of
// another network.
func (c *clientConn) RemoteAddr() net.Addr { return &c.address }

// A dialedAddr is the address of a listener, with the network that Kitex has passed to the dialer.
type dialedAddr struct {
	net.Addr
	network string
}

func (a *dialedAddr) Network() string { return a.network }

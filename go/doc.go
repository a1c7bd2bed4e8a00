// SPDX-License-Identifier: MIT OR Apache-2.0

// Package partywall carries messages between two processes of one machine through shared memory.
//
// Each side writes only its own memory and sees its peer's read-only. Messages arrive whole and in
// order, large ones without being copied, and a busy pair makes no system calls. Where memory
// cannot be shared, as over TCP, the same API runs over a socket and says why
// ([Channel.Transport]).
//
// A [Channel] is one pipe of messages in each direction. One process listens:
//
//	listener, err := partywall.ListenChannel("unix:/run/app.sock", nil)
//	channel, err := listener.Accept(ctx)
//	request, err := channel.RecvMessage()
//	err = channel.Send(request.Bytes())
//	request.Release()
//
// The other connects:
//
//	channel, err := partywall.DialChannel(ctx, "unix:/run/app.sock", nil)
//	err = channel.Send([]byte("hello"))
//
// A [Session] carries any number of streams over one connection, which both sides open:
//
//	listener, err := partywall.ListenSession("unix:/run/app.sock", nil)
//	session, err := listener.Accept(ctx)
//	stream, err := session.AcceptStream(ctx)
//
// and at the other end
//
//	session, err := partywall.DialSession(ctx, "unix:/run/app.sock", nil)
//	stream, err := session.OpenStream(ctx, []byte("orders"))
//
// A [Stream] is a [net.Conn] as well. [Listen], [Dial] and [Dialer] are the listener and the dialer
// of programs that were written for sockets. A server of HTTP:
//
//	listener, err := partywall.Listen("unix:/run/app.sock", nil)
//	err = http.Serve(listener, handler)
//
// and its client, which connects to the address whatever the host of a URL is:
//
//	var dialer partywall.Dialer
//	client := http.Client{Transport: &http.Transport{
//		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
//			return dialer.DialContext(ctx, network, "unix:/run/app.sock")
//		},
//	}}
//	response, err := client.Get("http://app/orders")
//
// Package partywall.test/go/calls makes calls over a stream. The modules partywallgrpc,
// partywallhertz and partywallkitex below partywall.test/go are for gRPC, Hertz and Kitex.
//
// Addresses are written as "unix:/path", "unix:@name" (an abstract name) or "tcp:host:port".
//
// The module is written to the specification in spec/SPEC.md, and speaks with any other
// implementation of it. Shared memory needs Linux on a 64-bit processor; elsewhere the module uses
// sockets.
package partywall

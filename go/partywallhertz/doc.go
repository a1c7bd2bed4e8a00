// SPDX-License-Identifier: MIT OR Apache-2.0

// Package partywallhertz runs servers and clients of Hertz over shared memory.
//
// The server:
//
//	listener, err := partywall.Listen("unix:/run/app.sock", nil)
//	if err != nil {
//		return err
//	}
//	h := server.New(partywallhertz.ServerOptions(listener)...)
//	h.GET("/orders", func(ctx context.Context, c *app.RequestContext) {
//		peer, _ := partywallhertz.PeerFromContext(ctx)
//		c.String(200, "hello, process %d", peer.PID)
//	})
//	return h.Run()
//
// The client:
//
//	var dialer partywall.Dialer
//	c, err := client.NewClient(client.WithDialer(
//		partywallhertz.NewDialer(&dialer, "unix:/run/app.sock")))
//	if err != nil {
//		return err
//	}
//	status, body, err := c.Get(ctx, nil, "http://app/orders")
//
// A connection of Hertz is a stream of a session. The host of a URL is only sent in the request:
// the client connects to the dialer's address. URLs of https fail, because there is no TLS over
// shared memory.
//
// If a pooled connection has ended, Hertz sends a GET again on a new connection, and other requests
// if RetryIf of the client allows it. So after a restart of the server, the same client reaches the
// new one.
package partywallhertz

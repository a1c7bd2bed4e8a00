// SPDX-License-Identifier: MIT OR Apache-2.0

// Package partywallkitex runs servers and clients of Kitex over shared memory.
//
// The server:
//
//	listener, err := partywall.Listen("unix:/run/app.sock", nil)
//	if err != nil {
//		return err
//	}
//	return orders.NewServer(handler, partywallkitex.ServerOptions(listener)...).Run()
//
// The client:
//
//	var dialer partywall.Dialer
//	c, err := orders.NewClient("orders",
//		partywallkitex.ClientOptions(&dialer, "unix:/run/app.sock")...)
//
// A connection of Kitex is a stream of a session. [PeerFromContext] returns the process that has
// made a call; Admit of partywall.Config refuses peers, on either side.
//
// Calls use TTHeader, or the protocol that client.WithTransportProtocol names. Streams of Kitex use
// gRPC: add client.WithTransportProtocol(transport.TTHeader | transport.GRPCStreaming), or
// transport.GRPC for calls as well. TTHeader streaming and the multiplexed connections of Kitex are
// not carried: a client of v0.16.3 dials them with netpoll, whatever its dialer is.
//
// Kitex makes a connection for each call, unless client.WithLongConnection keeps them. Either way
// the connections are streams of one session, and opening a stream takes no round trip.
package partywallkitex

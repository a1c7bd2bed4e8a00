// SPDX-License-Identifier: MIT OR Apache-2.0

// Package partywallgrpc runs gRPC over shared memory. Servers and clients keep their code: the
// server gets another listener and other credentials, the client another constructor.
//
// The server:
//
//	listener, err := partywall.Listen("unix:/run/app.sock", nil)
//	if err != nil {
//		return err
//	}
//	server := grpc.NewServer(grpc.Creds(partywallgrpc.NewCredentials(nil)))
//	pb.RegisterGreeterServer(server, greeter{})
//	return server.Serve(listener)
//
// The client:
//
//	var dialer partywall.Dialer
//	client, err := partywallgrpc.NewClient("unix:/run/app.sock", &dialer)
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	reply, err := pb.NewGreeterClient(client).Greet(ctx, request)
//
// A connection of gRPC is a stream of a session. All clients of one [partywall.Dialer] share the
// session with each server.
//
// # Credentials
//
// A handler gets the process, the user and the group of its caller from [PeerFromContext]. The
// kernel has verified them; the caller cannot choose them. [NewCredentials] takes a function that
// refuses callers, such as [OnlyUIDs]:
//
//	grpc.Creds(partywallgrpc.NewCredentials(partywallgrpc.OnlyUIDs(1000)))
//
// A client can refuse a server in the same way. To refuse a process before it has a session at all,
// set Admit of [partywall.Config].
//
// # Failures
//
// Unfinished calls fail with the code Unavailable when the other process dies. The same client
// connects again by itself, as gRPC's backoff says, once a server listens on the address.
//
// # Targets
//
// gRPC rewrites a target that begins with "unix:" before it calls the dialer. So [NewClient] takes
// an address of package partywall instead of a target, and passes it through.
package partywallgrpc

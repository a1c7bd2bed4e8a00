// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallgrpc_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	pb "google.golang.org/grpc/health/grpc_health_v1"

	partywall "partywall.test/go"
	"partywall.test/go/partywallgrpc"
)

// healthServer is the health service of gRPC. It prints which process calls.
type healthServer struct{ *health.Server }

func (s healthServer) Check(
	ctx context.Context, request *pb.HealthCheckRequest,
) (*pb.HealthCheckResponse, error) {
	if caller, ok := partywallgrpc.PeerFromContext(ctx); ok {
		fmt.Println("called by this process:", caller.PID == os.Getpid())
	}
	return s.Server.Check(ctx, request)
}

// A gRPC server admits the processes of its own user, and a client calls it.
func Example() {
	directory, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(directory)
	address := "unix:" + filepath.Join(directory, "app.sock")

	listener, err := partywall.Listen(address, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	own := partywallgrpc.OnlyUIDs(uint32(os.Geteuid()))
	server := grpc.NewServer(grpc.Creds(partywallgrpc.NewCredentials(own)))
	pb.RegisterHealthServer(server, healthServer{health.NewServer()})
	go server.Serve(listener)
	defer server.Stop()

	var dialer partywall.Dialer
	defer dialer.Close()
	client, err := partywallgrpc.NewClient(address, &dialer)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	reply, err := pb.NewHealthClient(client).Check(
		context.Background(), &pb.HealthCheckRequest{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(reply.GetStatus())
	// Output:
	// called by this process: true
	// SERVING
}

// A client refuses servers that do not run as the user root.
func ExampleNewClient() {
	var dialer partywall.Dialer // one for the whole program
	defer dialer.Close()
	client, err := partywallgrpc.NewClient("unix:/run/app.sock", &dialer,
		grpc.WithTransportCredentials(partywallgrpc.NewCredentials(partywallgrpc.OnlyUIDs(0))))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close() // it connects with its first call
	fmt.Println(client.Target())
	// Output: passthrough:///unix:/run/app.sock
}

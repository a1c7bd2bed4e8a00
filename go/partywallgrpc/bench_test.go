// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallgrpc_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

// BenchmarkUnary times one call after the other to another process, over shared memory and over a
// Unix socket of package net.
func BenchmarkUnary(b *testing.B) {
	for _, size := range []int{64, 64 << 10} {
		for _, kind := range []string{"partywall", "unix"} {
			b.Run(fmt.Sprintf("%d/%s", size, kind), func(b *testing.B) {
				client := benchClient(b, kind)
				request := &pb.SimpleRequest{Payload: payload(1, size)}
				for b.Loop() {
					if _, err := client.CacheableUnaryCall(context.Background(), request); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// benchClient starts a server of the given kind in another process, and returns a gRPC client of
// it.
func benchClient(b *testing.B, kind string) pb.TestServiceClient {
	path := filepath.Join(b.TempDir(), "s")
	if kind == "partywall" {
		return startServer(b, "unix:"+path, "shared memory", "").client(b)
	}
	startServer(b, plainPrefix+path, "", "")
	client, err := grpc.NewClient("unix:"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Close() })
	return pb.NewTestServiceClient(client)
}

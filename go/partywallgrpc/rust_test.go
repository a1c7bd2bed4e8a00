// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallgrpc_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// frameworksVariable names the program that crates/partywall/examples/framework_peer.rs is compiled
// to. Without it these tests are skipped.
const frameworksVariable = "PARTYWALL_RUST_FRAMEWORKS"

func rustCommand(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	program := os.Getenv(frameworksVariable)
	if program == "" {
		t.Skipf("%s does not name the example framework_peer of the Rust crate", frameworksVariable)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*testTime)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, program, arguments...)
}

// startTonic starts a server of tonic, which ends with the test.
func startTonic(t *testing.T, address, transport string) *serverProcess {
	t.Helper()
	s := &serverProcess{Cmd: rustCommand(t, "tonic", address), address: address, transport: transport}
	s.Stderr = os.Stderr
	output, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	s.events = bufio.NewScanner(output)
	s.mustReport(t, "ready")
	return s
}

// A client of gRPC-go calls a server of tonic. When that is killed, calls fail with Unavailable,
// and the same client reaches the next server.
func TestClientCallsTonic(t *testing.T) {
	for transport := range transports {
		t.Run(transport, func(t *testing.T) {
			address := "unix:" + filepath.Join(t.TempDir(), "s")
			server := startTonic(t, address, transport)
			client := server.client(t)
			mustCallTonic(t, client)

			stream, err := client.FullDuplexCall(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			for i := range 200 {
				exchange(t, stream, payload(i, i*97))
			}
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); err != io.EOF {
				t.Errorf("the stream ends with %v", err)
			}
			_, err = client.EmptyCall(testContext(t), &pb.Empty{})
			if status.Code(err) != codes.Unimplemented {
				t.Errorf("a method that the server does not have: %v", err)
			}
			server.kill()
			_, err = client.UnaryCall(testContext(t), &pb.SimpleRequest{})
			if status.Code(err) != codes.Unavailable {
				t.Errorf("a call to a killed server ends with %v", err)
			}
			startTonic(t, address, transport)
			mustCallTonic(t, client)
		})
	}
}

func mustCallTonic(t *testing.T, client pb.TestServiceClient) {
	t.Helper()
	for i, size := range []int{0, 1, 1024, 65_535, 65_536, 1 << 20, 3 << 20} {
		sent := payload(i, size)
		answer, err := client.UnaryCall(
			testContext(t), &pb.SimpleRequest{Payload: sent}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(answer.GetPayload().GetBody(), sent.GetBody()) {
			t.Errorf("%d bytes come back as %d others", size, len(answer.GetPayload().GetBody()))
		}
		if want := fmt.Sprint("process ", os.Getpid()); answer.GetUsername() != want {
			t.Errorf("the server is called by %q, want %q", answer.GetUsername(), want)
		}
	}
}

// A client of tonic calls a server of gRPC-go, which knows the client's process.
func TestTonicCallsServer(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		if output, err := rustCommand(t, "call-tonic", s.address).CombinedOutput(); err != nil {
			t.Errorf("the client ends with %v\n%s", err, output)
		}
	})
}

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
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// frameworksVariable is the environment variable with the path of the program to which
// crates/partywall/examples/framework_peer.rs is compiled. Without the variable the tests of this
// file are skipped.
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

// startTonic starts a server of tonic in a process that ends with the test.
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

// A client of gRPC-go calls a server of tonic. When the server is killed, calls fail with
// Unavailable, and the same client reaches the next server.
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
			mustStreamTonic(t, client)
			_, err = client.EmptyCall(testContext(t), &pb.Empty{})
			if status.Code(err) != codes.Unimplemented {
				t.Errorf("a method that the server does not have: %v", err)
			}
			ended := make(chan error)
			go func() {
				_, err := client.UnaryCall(testContext(t), &pb.SimpleRequest{ResponseSize: waitSize})
				ended <- err
			}()
			server.mustReport(t, "waits")
			server.kill()
			if err := <-ended; status.Code(err) != codes.Unavailable {
				t.Errorf("a call to a killed server ends with %v", err)
			}
			_, err = client.UnaryCall(testContext(t), &pb.SimpleRequest{})
			if status.Code(err) != codes.Unavailable {
				t.Errorf("a call without a server ends with %v", err)
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

// mustStreamTonic makes a call with a stream of responses, and a call with a stream of requests,
// and checks both.
func mustStreamTonic(t *testing.T, client pb.TestServiceClient) {
	t.Helper()
	request := &pb.StreamingOutputCallRequest{}
	for i := range int32(200) {
		request.ResponseParameters = append(request.ResponseParameters,
			&pb.ResponseParameters{Size: i * i * 37 % 90_000})
	}
	responses, err := client.StreamingOutputCall(testContext(t), request)
	if err != nil {
		t.Fatal(err)
	}
	for i, wanted := range request.ResponseParameters {
		response, err := responses.Recv()
		want := outputOf(i, int(wanted.Size)).GetPayload().GetBody()
		if err != nil || !bytes.Equal(response.GetPayload().GetBody(), want) {
			t.Fatalf("response %d differs: %v", i, err)
		}
	}
	if _, err := responses.Recv(); err != io.EOF {
		t.Errorf("the stream of responses ends with %v", err)
	}
	requests, err := client.StreamingInputCall(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for i := range 200 {
		sum += i * 97
		request := &pb.StreamingInputCallRequest{Payload: payload(i, i*97)}
		if err := requests.Send(request); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := requests.CloseAndRecv()
	if err != nil || int(answer.GetAggregatedPayloadSize()) != sum {
		t.Errorf("the sum is %v, %v; want %d", answer, err, sum)
	}
}

// A client of gRPC-go cancels a call, or lets its deadline pass. The call ends at the server of
// tonic, and the connection goes on.
func TestTonicSeesCallsGivenUp(t *testing.T) {
	for transport := range transports {
		t.Run(transport, func(t *testing.T) {
			server := startTonic(t, "unix:"+filepath.Join(t.TempDir(), "s"), transport)
			client := server.client(t)
			ctx, cancel := context.WithCancel(testContext(t))
			defer cancel()
			ended := make(chan error)
			go func() {
				_, err := client.UnaryCall(ctx, &pb.SimpleRequest{ResponseSize: waitSize})
				ended <- err
			}()
			server.mustReport(t, "waits")
			cancel()
			if err := <-ended; status.Code(err) != codes.Canceled {
				t.Errorf("a cancelled call ends with %v", err)
			}
			server.mustReport(t, "ended")

			late, cancel := context.WithTimeout(testContext(t), 500*time.Millisecond)
			defer cancel()
			_, err := client.UnaryCall(late, &pb.SimpleRequest{ResponseSize: waitSize})
			// If tonic notices the deadline before the client does, it reports the code Canceled.
			isOfTonic := strings.Contains(status.Convert(err).Message(), "Timeout expired")
			if status.Code(err) != codes.DeadlineExceeded && !isOfTonic {
				t.Errorf("a call ends after its deadline with %v", err)
			}
			mustCallTonic(t, client)
		})
	}
}

// A client of tonic cancels a call, which ends at the server of gRPC-go, and lets a deadline pass.
func TestTonicGivesCallsUp(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		client := rustCommand(t, "give-up", s.address)
		var output bytes.Buffer
		client.Stdout, client.Stderr = &output, &output
		input, err := client.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Start(); err != nil {
			t.Fatal(err)
		}
		s.mustReport(t, "waits")
		if _, err := io.WriteString(input, "cancel\n"); err != nil {
			t.Fatal(err)
		}
		s.mustReport(t, "ended "+context.Canceled.Error())
		if err := client.Wait(); err != nil {
			t.Errorf("the client ends with %v\n%s", err, output.String())
		}
	})
}

// While the server is dead, calls of a client of tonic fail with Unavailable. The same client
// reaches the next server.
func TestTonicSurvivesKilledServer(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		client := &serverProcess{Cmd: rustCommand(t, "survive", s.address)}
		client.Stderr = os.Stderr
		output, err := client.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.kill)
		client.events = bufio.NewScanner(output)
		client.mustReport(t, "waits")
		s.mustReport(t, "waits")
		s.kill()
		client.mustReport(t, "unavailable")
		startServer(t, s.address, s.transport, "")
		client.mustReport(t, "recovered")
		if err := client.Wait(); err != nil {
			t.Errorf("the client ends with %v", err)
		}
	})
}

// A client of tonic calls a server of gRPC-go, and the server knows the client's process.
func TestTonicCallsServer(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		if output, err := rustCommand(t, "call-tonic", s.address).CombinedOutput(); err != nil {
			t.Errorf("the client ends with %v\n%s", err, output)
		}
	})
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallgrpc_test

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

func TestUnaryCallReturnsTheBytes(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		client, ctx := s.client(t), testContext(t)
		for i, size := range []int{0, 1, 64, 4096, 65_535, 65_536, 1 << 20, 3 << 20} {
			mustCall(t, ctx, client, payload(i, size))
		}
	})
}

func TestUnaryCallsAtOnce(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		client, ctx := s.client(t), testContext(t)
		var group sync.WaitGroup
		for i := range 32 {
			group.Go(func() {
				for j := range 50 {
					mustCall(t, ctx, client, payload(i+j, i*j*11))
				}
			})
		}
		group.Wait()
	})
}

// mustCall makes a call, and returns the process id that the answer states.
func mustCall(
	t *testing.T, ctx context.Context, client pb.TestServiceClient, sent *pb.Payload,
	options ...grpc.CallOption,
) string {
	t.Helper()
	answer, err := client.UnaryCall(ctx, &pb.SimpleRequest{Payload: sent}, options...)
	if err != nil {
		t.Error(err)
		return ""
	}
	if !bytes.Equal(answer.GetPayload().GetBody(), sent.GetBody()) {
		t.Errorf("%d bytes come back as %d others", len(sent.GetBody()),
			len(answer.GetPayload().GetBody()))
	}
	return answer.GetServerId()
}

func TestServerStreamArrivesInOrder(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		request, sizes := &pb.StreamingOutputCallRequest{}, []int{}
		for i := range 500 {
			sizes = append(sizes, i*i*37%90_000)
			request.ResponseParameters = append(request.ResponseParameters,
				&pb.ResponseParameters{Size: int32(sizes[i])})
		}
		stream, err := s.client(t).StreamingOutputCall(testContext(t), request)
		if err != nil {
			t.Fatal(err)
		}
		for i, size := range sizes {
			answer, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(answer.GetPayload().GetBody(), payload(i, size).GetBody()) {
				t.Fatalf("response %d differs", i)
			}
		}
		if _, err := stream.Recv(); err != io.EOF {
			t.Errorf("after the last response: %v", err)
		}
	})
}

func TestClientStreamIsSummed(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		stream, err := s.client(t).StreamingInputCall(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for i := range 300 {
			sum += i * 100
			request := &pb.StreamingInputCallRequest{Payload: payload(i, i*100)}
			if err := stream.Send(request); err != nil {
				t.Fatal(err)
			}
		}
		answer, err := stream.CloseAndRecv()
		if err != nil || int(answer.GetAggregatedPayloadSize()) != sum {
			t.Errorf("the sum is %v, %v; want %d", answer, err, sum)
		}
	})
}

func TestBidirectionalStream(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		stream, err := s.client(t).FullDuplexCall(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 300 {
			exchange(t, stream, payload(i, i*i%50_000))
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != io.EOF {
			t.Errorf("after the end of the requests: %v", err)
		}
	})
}

type duplexStream = grpc.BidiStreamingClient[
	pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]

// exchange sends a payload on the stream, and waits until the server has sent it back.
func exchange(t *testing.T, stream duplexStream, sent *pb.Payload) {
	t.Helper()
	if err := stream.Send(&pb.StreamingOutputCallRequest{Payload: sent}); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil || !bytes.Equal(answer.GetPayload().GetBody(), sent.GetBody()) {
		t.Fatalf("%d bytes do not come back: %v", len(sent.GetBody()), err)
	}
}

func TestCanceledStreamEndsAtTheServer(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		client := s.client(t)
		ctx, cancel := context.WithCancel(testContext(t))
		defer cancel()
		stream, err := client.FullDuplexCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, stream, payload(1, 100))
		cancel()
		if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
			t.Errorf("a canceled call ends with %v", err)
		}
		s.mustReport(t, "ended "+codes.Canceled.String())
		mustCall(t, testContext(t), client, payload(2, 100)) // the connection goes on
	})
}

func TestDeadlineEndsACall(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		client := s.client(t)
		mustCall(t, testContext(t), client, payload(1, 100))
		// A server that is late begins no handler of a call whose deadline has passed, so the call
		// is made again with more time until a handler has begun.
		var hasBegun atomic.Bool
		ended := make(chan error, 1)
		go func() {
			var err error
			for left := 500 * time.Millisecond; left < testTime; left *= 2 {
				ctx, cancel := context.WithTimeout(context.Background(), left)
				_, err = client.UnaryCall(ctx, &pb.SimpleRequest{ResponseSize: waitSize})
				cancel()
				if status.Code(err) != codes.DeadlineExceeded || hasBegun.Load() {
					break
				}
			}
			ended <- err
		}()
		s.mustReport(t, "waits")
		hasBegun.Store(true)
		if err := <-ended; status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a call ends after its deadline with %v", err)
		}
		for s.events.Scan() && s.events.Text() == "waits" { // of a call that was made again
		}
		// The server's own deadline, or the client's cancel, comes first.
		if !strings.HasPrefix(s.events.Text(), "ended ") {
			t.Error("the call does not end at the server")
		}
		mustCall(t, testContext(t), client, payload(2, 100)) // the connection goes on
	})
}

// When the server is killed during a call, the call fails with Unavailable. The same client reaches
// the next server on the address.
func TestKilledServerIsUnavailable(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		client := s.client(t)
		first := mustCall(t, testContext(t), client, payload(1, 100))
		if first != strconv.Itoa(s.Process.Pid) {
			t.Errorf("process %s answers, want %d", first, s.Process.Pid)
		}
		stream, err := client.FullDuplexCall(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, stream, payload(1, 100))
		ended := make(chan error)
		go func() {
			_, err := client.UnaryCall(testContext(t), &pb.SimpleRequest{ResponseSize: waitSize})
			ended <- err
		}()
		s.mustReport(t, "waits")
		s.kill()
		if err := <-ended; status.Code(err) != codes.Unavailable {
			t.Errorf("a call to a killed server ends with %v", err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("a stream to a killed server ends with %v", err)
		}
		_, err = client.UnaryCall(testContext(t), &pb.SimpleRequest{})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("a call without a server ends with %v", err)
		}

		next := startServer(t, s.address, s.transport, "")
		pid := mustCall(t, testContext(t), client, payload(3, 100), grpc.WaitForReady(true))
		if pid != strconv.Itoa(next.Process.Pid) {
			t.Errorf("process %s answers, want %d", pid, next.Process.Pid)
		}
	})
}

func TestClientThatStartsFirstWaitsForTheServer(t *testing.T) {
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	early := &serverProcess{address: address, transport: "shared memory"}
	client := early.client(t)
	_, err := client.UnaryCall(testContext(t), &pb.SimpleRequest{})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a call without a server ends with %v", err)
	}
	startServer(t, address, "shared memory", "")
	mustCall(t, testContext(t), client, payload(1, 100), grpc.WaitForReady(true))
}

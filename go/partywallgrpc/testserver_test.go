// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallgrpc_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	partywall "partywall.test/go"
	"partywall.test/go/partywallgrpc"
)

// testServer implements the service of gRPC's own tests, as far as the tests of this package need
// it.
type testServer struct {
	pb.UnimplementedTestServiceServer
	events io.Writer // one line for each thing that happened
}

// UnaryCall answers with the bytes of the request, the identity of the caller, and the process id
// of the server. It does not answer a request that asks for waitSize bytes: the handler of that
// request waits until the call is canceled.
func (s testServer) UnaryCall(
	ctx context.Context, request *pb.SimpleRequest,
) (*pb.SimpleResponse, error) {
	if request.GetResponseSize() == waitSize {
		fmt.Fprintln(s.events, "waits")
		<-ctx.Done()
		fmt.Fprintln(s.events, "ended", ctx.Err())
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	p, ok := partywallgrpc.PeerFromContext(ctx)
	if !ok {
		return nil, status.Error(codes.Internal, "the caller is not known")
	}
	return &pb.SimpleResponse{
		Payload:  request.GetPayload(),
		Username: identity(p),
		ServerId: strconv.Itoa(os.Getpid()),
	}, nil
}

func (testServer) CacheableUnaryCall(
	_ context.Context, request *pb.SimpleRequest,
) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{Payload: request.GetPayload()}, nil
}

func (testServer) StreamingOutputCall(
	request *pb.StreamingOutputCallRequest,
	stream grpc.ServerStreamingServer[pb.StreamingOutputCallResponse],
) error {
	for i, wanted := range request.GetResponseParameters() {
		if err := stream.Send(outputOf(i, int(wanted.GetSize()))); err != nil {
			return err
		}
	}
	return nil
}

func (testServer) StreamingInputCall(
	stream grpc.ClientStreamingServer[pb.StreamingInputCallRequest, pb.StreamingInputCallResponse],
) error {
	sum := 0
	for {
		request, err := stream.Recv()
		if err == io.EOF {
			return stream.SendAndClose(
				&pb.StreamingInputCallResponse{AggregatedPayloadSize: int32(sum)})
		}
		if err != nil {
			return err
		}
		sum += len(request.GetPayload().GetBody())
	}
}

func (s testServer) FullDuplexCall(
	stream grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse],
) error {
	for {
		request, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			fmt.Fprintln(s.events, "ended", status.Code(err))
			return err
		}
		answer := &pb.StreamingOutputCallResponse{Payload: request.GetPayload()}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func outputOf(i, size int) *pb.StreamingOutputCallResponse {
	return &pb.StreamingOutputCallResponse{Payload: payload(i, size)}
}

func payload(number, size int) *pb.Payload {
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(number + i*7)
	}
	return &pb.Payload{Body: body}
}

// waitSize is the size that a request asks for if its handler is to wait for ever instead of
// answering.
const waitSize = -1

func identity(p partywall.Peer) string {
	return fmt.Sprintf("process %d, user %d, group %d", p.PID, p.UID, p.GID)
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallkitex

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
	"github.com/cloudwego/kitex/pkg/streaming"
)

// A payload is a message of the test service. Its bytes are sent as they are, without generated
// code.
type payload struct{ data []byte }

func (p *payload) Marshal(out []byte) ([]byte, error) { return append(out, p.data...), nil }

func (p *payload) Unmarshal(in []byte) error {
	p.data = append([]byte(nil), in...)
	return nil
}

func newPayload() any { return &payload{} }

// unary returns a method with one request and one answer. Over gRPC both are messages of a stream.
func unary(call func(context.Context, []byte) ([]byte, error)) serviceinfo.MethodInfo {
	handler := func(ctx context.Context, _, argument, result any) error {
		stream, err := streaming.GetServerStreamFromArg(argument)
		if err != nil {
			answer, err := call(ctx, argument.(*payload).data)
			result.(*payload).data = answer
			return err
		}
		var request payload
		if err := stream.RecvMsg(ctx, &request); err != nil {
			return err
		}
		answer, err := call(ctx, request.data)
		if err != nil {
			return err
		}
		return stream.SendMsg(ctx, &payload{answer})
	}
	return serviceinfo.NewMethodInfo(handler, newPayload, newPayload, false,
		serviceinfo.WithStreamingMode(serviceinfo.StreamingUnary))
}

// streamed returns a method of the test service whose requests and answers are streams.
func streamed(
	mode serviceinfo.StreamingMode, serve func(context.Context, streaming.ServerStream) error,
) serviceinfo.MethodInfo {
	handler := func(ctx context.Context, _, argument, _ any) error {
		stream, err := streaming.GetServerStreamFromArg(argument)
		if err != nil {
			return err
		}
		return serve(ctx, stream)
	}
	return serviceinfo.NewMethodInfo(handler, newPayload, newPayload, false,
		serviceinfo.WithStreamingMode(mode))
}

// service describes the methods of the test service. The methods write a line to the output of
// their process for each event.
var service = serviceinfo.ServiceInfo{
	ServiceName: "Test", HandlerType: (*any)(nil), PayloadCodec: serviceinfo.Protobuf,
	Extra: map[string]any{"PackageName": "test"},
	Methods: map[string]serviceinfo.MethodInfo{
		"echo": unary(func(_ context.Context, request []byte) ([]byte, error) {
			return request, nil
		}),
		"peer": unary(func(ctx context.Context, _ []byte) ([]byte, error) {
			peer, ok := PeerFromContext(ctx)
			return fmt.Appendf(nil, "%v %d %d %d; %d", ok, peer.PID, peer.UID, peer.GID,
				os.Getpid()), nil
		}),
		"wait": unary(func(context.Context, []byte) ([]byte, error) {
			fmt.Println("waits")
			select {} // the process ends
		}),
		"stream": streamed(serviceinfo.StreamingBidirectional, echoStream),
		"held":   streamed(serviceinfo.StreamingBidirectional, holdStream),
		"down":   streamed(serviceinfo.StreamingServer, sendStream),
		"up":     streamed(serviceinfo.StreamingClient, countStream),
	},
}

func echoStream(ctx context.Context, stream streaming.ServerStream) error {
	for {
		var request payload
		if err := stream.RecvMsg(ctx, &request); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.SendMsg(ctx, &request); err != nil {
			return err
		}
	}
}

func holdStream(ctx context.Context, stream streaming.ServerStream) error {
	if err := stream.RecvMsg(ctx, &payload{}); err != nil {
		return err
	}
	fmt.Println("waits")
	<-ctx.Done()
	fmt.Println("cancelled")
	return ctx.Err()
}

func sendStream(ctx context.Context, stream streaming.ServerStream) error {
	if err := stream.RecvMsg(ctx, &payload{}); err != nil {
		return err
	}
	for i := range streamedMessages {
		if err := stream.SendMsg(ctx, &payload{counted(i, i*101)}); err != nil {
			return err
		}
	}
	return nil
}

func countStream(ctx context.Context, stream streaming.ServerStream) error {
	sum := 0
	for {
		var request payload
		if err := stream.RecvMsg(ctx, &request); err == io.EOF {
			return stream.SendMsg(ctx, &payload{[]byte(strconv.Itoa(sum))})
		} else if err != nil {
			return err
		}
		sum += len(request.data)
	}
}

type testClient struct{ client.Client }

func (c testClient) call(ctx context.Context, method string, request []byte) ([]byte, error) {
	var answer payload
	err := c.Call(ctx, method, &payload{request}, &answer)
	return answer.data, err
}

func (c testClient) stream(ctx context.Context, method string) (streaming.ClientStream, error) {
	return c.Client.(client.Streaming).StreamX(ctx, method)
}

func recv(ctx context.Context, stream streaming.ClientStream) ([]byte, error) {
	var answer payload
	err := stream.RecvMsg(ctx, &answer)
	return answer.data, err
}

// streamedMessages is the number of messages that a stream of the tests carries in one direction.
const streamedMessages = 50

// SPDX-License-Identifier: MIT OR Apache-2.0

// Package calls makes calls over one stream of a session: many in flight, answered in any order,
// with deadlines and cancelling. The bytes are those of spec/CALLS.md, so the other process may be
// written in any language.
//
//	client := calls.NewClient(stream, nil)
//	answer, err := client.Call(ctx, []byte("hello"))
//
// and in the other process
//
//	handler := func(ctx context.Context, request *calls.Request) ([]byte, error) {
//		return bytes.ToUpper(request.Bytes()), nil
//	}
//	err := calls.Serve(ctx, stream, handler, nil)
//
// Either process may have opened the stream. Calls in the other direction take another stream.
//
// A call that was given up may have done its work all the same. A client that repeats calls after
// an error needs handlers that may safely run twice.
package calls

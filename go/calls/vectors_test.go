// SPDX-License-Identifier: MIT OR Apache-2.0

package calls

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	partywall "partywall.test/go"
)

// vectorCount is the number of rows in spec/calls.tsv.
const vectorCount = 56

// A vector is a row of spec/calls.tsv: messages that a client or a server of calls reads, and the
// outcome.
type vector struct {
	name, reader string
	made         int
	messages     [][]byte
	outcome      uint32
}

func vectors(t testing.TB) []vector {
	t.Helper()
	text, err := os.ReadFile("../../spec/calls.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var read []vector
	for _, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, "\t")
		if len(cells) != 5 {
			t.Fatalf("%q has %d cells", line, len(cells))
		}
		v := vector{name: cells[0], reader: cells[1]}
		made, errOfMade := strconv.Atoi(cells[2])
		outcome, errOfOutcome := strconv.ParseUint(cells[4], 10, 32)
		if err := errors.Join(errOfMade, errOfOutcome); err != nil {
			t.Fatal(err)
		}
		v.made, v.outcome = made, uint32(outcome)
		for _, digits := range strings.Split(cells[3], ",") {
			if digits == "none" {
				continue
			}
			message, err := hex.DecodeString(strings.Trim(digits, "-"))
			if err != nil {
				t.Fatal(err)
			}
			v.messages = append(v.messages, message)
		}
		read = append(read, v)
	}
	return read
}

func TestVectorsOfCalls(t *testing.T) {
	read := vectors(t)
	if len(read) != vectorCount {
		t.Errorf("%d vectors are read, want %d", len(read), vectorCount)
	}
	for _, v := range read {
		t.Run(v.name, func(t *testing.T) {
			opened, accepted := streams(t, ways()[0])
			peer := raw{opened}
			outcome := uint32(0)
			switch v.reader {
			case "server":
				outcome = v.serve(t, accepted, peer)
			case "client":
				outcome = v.call(t, accepted, peer)
			default:
				t.Fatalf("no reader %q", v.reader)
			}
			if outcome != v.outcome {
				t.Errorf("the outcome is %d, want %d", outcome, v.outcome)
			}
		})
	}
}

// serve lets a server read the messages of the vector, and returns the number of the violation, or
// 0.
func (v vector) serve(t *testing.T, stream *partywall.Stream, peer raw) uint32 {
	echo := func(_ context.Context, request *Request) ([]byte, error) { return request.Bytes(), nil }
	result := startServer(testContext(t), stream, echo, nil)
	v.sendAll(t, peer)
	return outcomeOf(result.wait(t))
}

// call lets a client make its calls and then read the messages of the vector, and returns the
// number of the violation, or 0.
func (v vector) call(t *testing.T, stream *partywall.Stream, peer raw) uint32 {
	client := NewClient(stream, nil)
	defer client.Close()
	ctx := testContext(t)
	var calls []*Call
	for range v.made {
		call, err := client.Begin(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, call)
		peer.receive(t)
	}
	v.sendAll(t, peer)
	receive(t, client.Done())
	for _, call := range calls {
		if answer, err := call.Wait(); err == nil {
			answer.Release()
		}
	}
	return outcomeOf(client.Err())
}

// sendAll sends the messages of the vector, and then ends its direction of the stream. It waits
// until the reading side has ended its own direction; after a violation that end must be a reset.
func (v vector) sendAll(t *testing.T, peer raw) {
	t.Helper()
	for _, message := range v.messages {
		if err := peer.Send(message); err != nil {
			t.Fatal(err)
		}
	}
	if err := peer.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if v.reader == "client" && v.outcome == 0 {
		return // the client does not end its direction by itself
	}
	for {
		message, err := peer.RecvMessage()
		if err == nil {
			message.Release()
			continue
		}
		var reset *partywall.Error
		switch {
		case v.outcome == 0 && err != io.EOF:
			t.Errorf("the reader ends its direction with %v", err)
		case v.outcome != 0 && !errors.As(err, &reset):
			t.Errorf("the reader ends its direction with %v, not a reset", err)
		case v.outcome != 0:
			if code, _ := reset.ApplicationCode(); code != codeViolation {
				t.Errorf("the reader resets with the code %#x", code)
			}
		}
		return
	}
}

// outcomeOf returns the number of the violation that err reports, or 0 if the stream ended well.
func outcomeOf(err error) uint32 {
	var e *Error
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return 0
	case errors.As(err, &e):
		return uint32(e.ErrorCode())
	}
	return 1
}

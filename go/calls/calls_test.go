// SPDX-License-Identifier: MIT OR Apache-2.0

package calls

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	partywall "partywall.test/go"
)

func mustAnswer(t *testing.T, client *Client, payload, want []byte) {
	t.Helper()
	answer, err := client.Call(testContext(t), payload)
	if err != nil {
		t.Fatalf("a call with %d bytes: %v", len(payload), err)
	}
	defer answer.Release()
	if !bytes.Equal(answer.Bytes(), want) || answer.Len() != len(want) {
		t.Fatalf("%d bytes are answered by %d others", len(payload), answer.Len())
	}
}

func mustBe(t *testing.T, err error, code uint32, target error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || uint32(e.ErrorCode()) != code || !errors.Is(err, target) {
		t.Errorf("%v, want code %d and %v", err, code, target)
	}
}

func upper(_ context.Context, request *Request) ([]byte, error) {
	return bytes.ToUpper(request.Bytes()), nil
}

func TestCallsAtOnceGetTheirOwnAnswers(t *testing.T) {
	eachWay(t, func(t *testing.T, opened, accepted *partywall.Stream) {
		result := startServer(testContext(t), accepted, upper, nil)
		client := NewClient(opened, &Config{InFlightMax: 7})
		var group sync.WaitGroup
		for i := range 16 {
			group.Go(func() {
				for j := range 30 {
					sent := bytes.Repeat([]byte{byte('a' + (i+j)%26)}, 1+i*j*j*j%70_000)
					answer, err := client.Call(testContext(t), sent)
					if err != nil {
						t.Error(err)
						return
					}
					if !bytes.Equal(answer.Bytes(), bytes.ToUpper(sent)) {
						t.Errorf("call %d of %d has the answer of another", j, i)
					}
					answer.Release()
				}
			})
		}
		group.Wait()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := result.wait(t); err != nil {
			t.Error(err)
		}
	})
}

func TestEverySizeIsAnswered(t *testing.T) {
	eachWay(t, func(t *testing.T, opened, accepted *partywall.Stream) {
		startServer(testContext(t), accepted, upper, nil)
		client := NewClient(opened, nil)
		defer client.Close()
		for _, size := range []int{0, 1, 15, 16, 495, 496, 497, 1024, 65_535, 65_536, 1 << 20, 4 << 20} {
			mustAnswer(t, client, bytes.Repeat([]byte{'x'}, size), bytes.Repeat([]byte{'X'}, size))
		}
	})
}

func TestErrorsOfHandlers(t *testing.T) {
	opened, accepted := streams(t, ways()[0])
	var logged strings.Builder
	config := &Config{ErrorLog: log.New(&logged, "", 0)}
	result := startServer(testContext(t), accepted, func(_ context.Context, r *Request) ([]byte, error) {
		switch string(r.Bytes()) {
		case "fail":
			return nil, fmt.Errorf("wrapped: %w", &Failure{Code: 7, Detail: []byte("why")})
		case "reserved":
			return nil, &Failure{Code: codeBusy}
		case "error":
			return nil, io.ErrUnexpectedEOF
		case "exit":
			runtime.Goexit()
		case "long":
			return make([]byte, 100<<20), nil
		}
		panic("no such call")
	}, config)
	client := NewClient(opened, nil)
	call := func(payload string) error {
		_, err := client.Call(testContext(t), []byte(payload))
		return err
	}
	var failure *Failure
	err := call("fail")
	if mustBe(t, err, 711, err); !errors.As(err, &failure) || failure.Code != 7 || string(failure.Detail) != "why" {
		t.Errorf("a failure is %v", err)
	}
	for _, payload := range []string{"reserved", "error", "exit", "long", "panic"} {
		err := call(payload)
		if mustBe(t, err, 713, ErrAborted); errors.Is(err, ErrLost) {
			t.Errorf("%s: %v", payload, err)
		}
	}
	if err := call("error"); !strings.Contains(err.Error(), io.ErrUnexpectedEOF.Error()) {
		t.Errorf("the text of an error is not in %q", err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := result.wait(t); err != nil {
		t.Error(err)
	}
	if !strings.Contains(logged.String(), "no such call") || !strings.Contains(logged.String(), "goroutine") {
		t.Errorf("a panic is logged as %q", &logged)
	}
}

// When a client gives a call up, the context of the call's handler ends, and the contexts of other
// handlers do not.
func TestCancelReachesHandler(t *testing.T) {
	eachWay(t, func(t *testing.T, opened, accepted *partywall.Stream) {
		began, given := make(chan struct{}), make(chan error, 1)
		startServer(testContext(t), accepted, func(ctx context.Context, r *Request) ([]byte, error) {
			if string(r.Bytes()) == "echo" {
				return r.Bytes(), nil
			}
			close(began)
			<-ctx.Done()
			given <- ctx.Err()
			return nil, ctx.Err()
		}, nil)
		client := NewClient(opened, nil)
		defer client.Close()
		ctx, cancel := context.WithCancel(testContext(t))
		call, err := client.Begin(ctx, []byte("wait"))
		if err != nil {
			t.Fatal(err)
		}
		receive(t, began)
		cancel()
		if _, err := call.Wait(); err != context.Canceled {
			t.Errorf("a cancelled call ends with %v", err)
		}
		if err := receive(t, given); err != context.Canceled {
			t.Errorf("the handler of a cancelled call ends with %v", err)
		}
		mustAnswer(t, client, []byte("echo"), []byte("echo"))
	})
}

// The deadline of a call is also the deadline of its handler's context. When it passes, the call
// fails at the client, and the context ends at the server.
func TestDeadlineReachesHandler(t *testing.T) {
	opened, accepted := streams(t, ways()[0])
	peer := raw{opened}
	deadlines := make(chan error, 100)
	startServer(testContext(t), accepted, func(ctx context.Context, r *Request) ([]byte, error) {
		if string(r.Bytes()) == "echo" {
			return r.Bytes(), nil
		}
		<-ctx.Done()
		deadlines <- ctx.Err()
		return nil, ctx.Err()
	}, &Config{RunningMax: 1})
	// A server that is late begins no handler of a call whose deadline has passed, so the calls are
	// made again with more time.
	for id, left := uint64(1), 20*time.Millisecond; len(deadlines) == 0; id, left = id+4, left*2 {
		if left > testTime {
			t.Fatal("no handler begins")
		}
		peer.send(t, frame{kindCall, uint32(left.Microseconds()), id}, "")
		peer.send(t, frame{kindCall, 1, id + 1}, "") // waits until its deadline passes
		peer.send(t, frame{kindOneWay, 1, id + 2}, "")
		results := map[frame]bool{}
		for range 2 {
			f, _ := peer.receive(t)
			results[f] = true
		}
		if !results[frame{kindError, codeDeadline, id}] || !results[frame{kindError, codeDeadline, id + 1}] {
			t.Fatalf("the results are %v", results)
		}
		// One handler runs at a time, so the handlers of the calls before have ended.
		peer.send(t, frame{kindCall, 0, id + 3}, "echo")
		peer.mustReceive(t, frame{kindAnswer, 0, id + 3}, "echo")
	}
	if err := <-deadlines; err != context.DeadlineExceeded {
		t.Errorf("the handler ends with %v", err)
	}
}

func TestDeadlineOfTheClient(t *testing.T) {
	eachWay(t, func(t *testing.T, opened, accepted *partywall.Stream) {
		// The context of the server gets no deadline here, because the context of each handler
		// would inherit it.
		startServer(context.Background(), accepted, func(ctx context.Context, r *Request) ([]byte, error) {
			if _, has := ctx.Deadline(); !has {
				return r.Bytes(), nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}, nil)
		client := NewClient(opened, nil)
		defer client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_, err := client.Call(ctx, []byte("late"))
		mustBe(t, err, 4, context.DeadlineExceeded)
		mustBe(t, err, 4, os.ErrDeadlineExceeded)
		<-ctx.Done() // the client's own clock: the server's answer may come before the deadline
		if _, err := client.Begin(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call after its deadline begins with %v", err)
		}
		answer, err := client.Call(context.Background(), []byte("next"))
		if err != nil || string(answer.Bytes()) != "next" {
			t.Fatal(err)
		}
		answer.Release()
	})
}

// A client drops an answer that comes after it has given the call up, and its next call gets its
// own answer.
func TestLateAnswerIsDropped(t *testing.T) {
	eachWay(t, func(t *testing.T, opened, accepted *partywall.Stream) {
		client, peer := NewClient(opened, &Config{InFlightMax: 1}), raw{accepted}
		defer client.Close()
		ctx, cancel := context.WithCancel(testContext(t))
		call, err := client.Begin(ctx, []byte("one"))
		if err != nil {
			t.Fatal(err)
		}
		if f, payload := peer.receive(t); f.kind != kindCall || f.id != 1 || payload != "one" {
			t.Fatalf("%+v with %q", f, payload)
		}
		cancel()
		if _, err := call.Wait(); err != context.Canceled {
			t.Errorf("a cancelled call ends with %v", err)
		}
		peer.mustReceive(t, frame{kindCancel, 0, 1}, "")
		peer.send(t, frame{kindAnswer, 0, 1}, "late")
		peer.send(t, frame{kindError, 7, 1}, "later")
		second, err := client.Begin(context.Background(), []byte("two"))
		if err != nil {
			t.Fatal(err)
		}
		peer.mustReceive(t, frame{kindCall, 0, 2}, "two")
		peer.send(t, frame{kindAnswer, 0, 2}, "second")
		answer, err := second.Wait()
		if err != nil || string(answer.Bytes()) != "second" {
			t.Fatal(err)
		}
		answer.Release()
	})
}

// A server that runs and keeps waiting as many calls as it may answers a further call with the
// error that it is busy, and drops a further one-way call. It still receives a CANCEL.
func TestServerAtItsLimitsIsBusy(t *testing.T) {
	opened, accepted := streams(t, ways()[0])
	peer := raw{opened}
	began, goOn := make(chan string, 9), make(chan struct{})
	startServer(testContext(t), accepted, func(ctx context.Context, r *Request) ([]byte, error) {
		began <- string(r.Bytes())
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-goOn:
			return r.Bytes(), nil
		}
	}, &Config{RunningMax: 1, WaitingMax: 2})
	for i, payload := range []string{"runs", "cancelled", "waits", "refused"} {
		peer.send(t, frame{kindCall, 0, uint64(i + 1)}, payload)
	}
	peer.send(t, frame{kindOneWay, 0, 5}, "dropped")
	peer.mustReceive(t, frame{kindError, codeBusy, 4}, "")
	peer.send(t, frame{kindCancel, 0, 2}, "")
	peer.send(t, frame{kindCall, 0, 6}, "last")
	peer.send(t, frame{kindCall, 0, 7}, "refused")
	peer.mustReceive(t, frame{kindError, codeBusy, 7}, "")
	close(goOn)
	peer.mustReceive(t, frame{kindAnswer, 0, 1}, "runs")
	peer.mustReceive(t, frame{kindAnswer, 0, 3}, "waits")
	peer.mustReceive(t, frame{kindAnswer, 0, 6}, "last")
	for _, want := range []string{"runs", "waits", "last"} {
		if payload := receive(t, began); payload != want {
			t.Errorf("the handler of %q runs, want %q", payload, want)
		}
	}
}

// When the server has ended, every call without an answer fails at once, and so does every later
// call.
func TestEndFailsEveryCall(t *testing.T) {
	eachWay(t, func(t *testing.T, opened, accepted *partywall.Stream) {
		client, peer := NewClient(opened, nil), raw{accepted}
		var calls []*Call
		for range 5 {
			call, err := client.Begin(testContext(t), []byte("one"))
			if err != nil {
				t.Fatal(err)
			}
			peer.receive(t)
			calls = append(calls, call)
		}
		if err := accepted.Close(); err != nil {
			t.Fatal(err)
		}
		receive(t, client.Done())
		failed := make(chan error, len(calls))
		for _, call := range calls {
			go func() {
				_, err := call.Wait()
				failed <- err
			}()
		}
		for range calls {
			err := receive(t, failed)
			if mustBe(t, err, 9, ErrLost); !errors.Is(err, io.EOF) {
				t.Errorf("%v does not wrap io.EOF", err)
			}
		}
		_, err := client.Call(testContext(t), nil)
		mustBe(t, err, 9, ErrLost)
		mustBe(t, client.CallOneWay(testContext(t), nil), 9, ErrLost)
		mustBe(t, client.Err(), 9, ErrLost)
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
}

// When a client is closed, its unanswered calls are given up. One-way calls that it has sent are
// still handled.
func TestCloseGivesCallsUp(t *testing.T) {
	eachWay(t, func(t *testing.T, opened, accepted *partywall.Stream) {
		began, given := make(chan struct{}, 9), make(chan struct{}, 9)
		var handled atomic.Int32
		result := startServer(testContext(t), accepted,
			func(ctx context.Context, r *Request) ([]byte, error) {
				if r.IsOneWay() {
					handled.Add(1)
					return nil, nil
				}
				began <- struct{}{}
				<-ctx.Done()
				given <- struct{}{}
				return nil, ctx.Err()
			}, nil)
		client := NewClient(opened, nil)
		failed := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := client.Call(context.Background(), []byte("wait"))
				failed <- err
			}()
			receive(t, began)
		}
		for range 10 {
			if err := client.CallOneWay(testContext(t), []byte("one way")); err != nil {
				t.Fatal(err)
			}
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		for range 3 {
			mustBe(t, receive(t, failed), 401, net.ErrClosed)
			receive(t, given)
		}
		if err := result.wait(t); err != nil || handled.Load() != 10 {
			t.Errorf("the server ends with %v, after %d one-way calls", err, handled.Load())
		}
		mustBe(t, client.Close(), 401, net.ErrClosed)
	})
}

// When the context of Serve ends, the contexts of all handlers end, and Serve returns after the
// handlers have.
func TestServerEndsWithItsContext(t *testing.T) {
	eachWay(t, func(t *testing.T, opened, accepted *partywall.Stream) {
		ctx, cancel := context.WithCancel(testContext(t))
		began := make(chan struct{}, 3)
		var running atomic.Int32
		result := startServer(ctx, accepted, func(ctx context.Context, r *Request) ([]byte, error) {
			running.Add(1)
			began <- struct{}{}
			<-ctx.Done()
			running.Add(-1)
			return nil, ctx.Err()
		}, &Config{RunningMax: 1})
		client := NewClient(opened, nil)
		defer client.Close()
		var calls []*Call
		for range 3 {
			call, err := client.Begin(testContext(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, call)
		}
		receive(t, began)
		cancel()
		if err := result.wait(t); err != context.Canceled || running.Load() != 0 {
			t.Errorf("the server ends with %v, %d handlers run", err, running.Load())
		}
		for _, call := range calls {
			if _, err := call.Wait(); !errors.Is(err, ErrLost) && !errors.Is(err, ErrAborted) {
				t.Errorf("a call ends with %v", err)
			}
		}
	})
}

// A call waits while the maximum of calls is in flight, and its deadline runs meanwhile.
func TestCallsBeyondTheLimitWait(t *testing.T) {
	opened, accepted := streams(t, ways()[0])
	client, peer := NewClient(opened, &Config{InFlightMax: 2}), raw{accepted}
	defer client.Close()
	var calls []*Call
	for range 2 {
		call, err := client.Begin(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, call)
	}
	late, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	_, err := client.Begin(late, nil)
	mustBe(t, err, 4, context.DeadlineExceeded)
	third := make(chan error, 1)
	go func() {
		_, err := client.Call(context.Background(), []byte("third"))
		third <- err
	}()
	peer.mustReceive(t, frame{kindCall, 0, 1}, "")
	peer.mustReceive(t, frame{kindCall, 0, 2}, "")
	peer.send(t, frame{kindAnswer, 0, 2}, "")
	peer.mustReceive(t, frame{kindCall, 0, 3}, "third")
	peer.send(t, frame{kindAnswer, 0, 3}, "")
	peer.send(t, frame{kindAnswer, 0, 1}, "")
	if err := receive(t, third); err != nil {
		t.Error(err)
	}
	for _, call := range calls {
		answer, err := call.Wait()
		if err != nil {
			t.Fatal(err)
		}
		answer.Release()
	}
}

// A message that is longer than the session can carry makes its own call fail, and no other.
func TestCallThatIsTooLong(t *testing.T) {
	opened, accepted := streams(t, ways()[0])
	startServer(testContext(t), accepted, upper, nil)
	client := NewClient(opened, &Config{InFlightMax: 1})
	defer client.Close()
	_, err := client.Call(testContext(t), make([]byte, 100<<20))
	if mustBe(t, err, 11, err); errors.Is(err, ErrLost) {
		t.Errorf("the client is lost: %v", err)
	}
	mustAnswer(t, client, []byte("next"), []byte("NEXT"))
}

// Clients and servers that have ended leave no goroutine behind.
func TestEndsLeaveNoGoroutines(t *testing.T) {
	once := func() {
		opened, accepted := streams(t, ways()[0])
		result := startServer(testContext(t), accepted, upper, nil)
		client := NewClient(opened, nil)
		mustAnswer(t, client, []byte("hello"), []byte("HELLO"))
		_, _ = client.Close(), result.wait(t)
		_, _ = opened.Session().Close(), accepted.Session().Close()
		receive(t, opened.Session().Done())
		receive(t, accepted.Session().Done())
	}
	once()
	before := runtime.NumGoroutine()
	for range 20 {
		once()
	}
	for end := time.Now().Add(testTime); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, before %d\n%s", runtime.NumGoroutine(), before,
				stacks[:runtime.Stack(stacks, true)])
		}
	}
}

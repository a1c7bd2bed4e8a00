// SPDX-License-Identifier: MIT OR Apache-2.0

package calls_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	partywall "partywall.test/go"
	"partywall.test/go/calls"
)

func shout(ctx context.Context, request *calls.Request) ([]byte, error) {
	if len(request.Bytes()) == 0 {
		return nil, &calls.Failure{Code: 1, Detail: []byte("nothing to shout")}
	}
	if string(request.Bytes()) == "slowly" {
		<-ctx.Done() // the client has given up
		return nil, ctx.Err()
	}
	return bytes.ToUpper(request.Bytes()), nil
}

func serve(listener *partywall.SessionListener) {
	session, err := listener.Accept(context.Background())
	if err != nil {
		return
	}
	defer session.Close()
	for {
		stream, err := session.AcceptStream(context.Background())
		if err != nil {
			return // the client has closed the session
		}
		go func() {
			if err := calls.Serve(context.Background(), stream, shout, nil); err != nil {
				fmt.Println("serving:", err)
			}
		}()
	}
}

// connect returns a client of calls to a new server, and a function that ends both the client and
// the server.
func connect() (client *calls.Client, end func(), err error) {
	directory, err := os.MkdirTemp("", "example")
	if err != nil {
		return nil, nil, err
	}
	remove := func() { _ = os.RemoveAll(directory) }
	listener, err := partywall.ListenSession("unix:"+filepath.Join(directory, "app.sock"), nil)
	if err != nil {
		remove()
		return nil, nil, err
	}
	go serve(listener)
	ctx := context.Background()
	session, err := partywall.DialSession(ctx, listener.Addr().String(), nil)
	if err != nil {
		_ = listener.Close()
		remove()
		return nil, nil, err
	}
	end = func() {
		if client != nil {
			_ = client.Close()
		}
		_ = session.Close()
		_ = listener.Close()
		remove()
	}
	stream, err := session.OpenStream(ctx, []byte("calls"))
	if err != nil {
		end()
		return nil, nil, err
	}
	client = calls.NewClient(stream, nil)
	return client, end, nil
}

func Example() {
	client, end, err := connect()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	answer, err := client.Call(context.Background(), []byte("hello"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", answer.Bytes())
	answer.Release()
	// Output: HELLO
}

// A handler fails a call with a code and a detail, which the client receives.
func ExampleFailure() {
	client, end, err := connect()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	_, err = client.Call(context.Background(), nil)
	var failure *calls.Failure
	if errors.As(err, &failure) {
		fmt.Printf("%d: %s\n", failure.Code, failure.Detail)
	}
	// Output: 1: nothing to shout
}

// The deadline of the context with which a call is made is also the deadline of the handler's
// context.
func ExampleClient_Call() {
	client, end, err := connect()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	_, err = client.Call(ctx, []byte("slowly"))
	var failure *calls.Error
	if errors.As(err, &failure) {
		fmt.Println(failure.ErrorCode(), errors.Is(err, context.DeadlineExceeded))
	}
	// Output: timed out true
}

// Calls that are begun one after the other are in flight at the same time.
func ExampleClient_Begin() {
	client, end, err := connect()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()

	var begun []*calls.Call
	for _, word := range []string{"one", "two", "three"} {
		call, err := client.Begin(context.Background(), []byte(word))
		if err != nil {
			fmt.Println(err)
			return
		}
		begun = append(begun, call)
	}
	for _, call := range begun {
		answer, err := call.Wait()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s\n", answer.Bytes())
		answer.Release()
	}
	// Output:
	// ONE
	// TWO
	// THREE
}

// A server answers the calls of one stream, and limits how many handlers run at a time.
func ExampleServe() {
	directory, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(directory)
	ctx := context.Background()
	listener, err := partywall.ListenSession("unix:"+filepath.Join(directory, "app.sock"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	ended := make(chan error, 1)
	go func() {
		session, err := partywall.DialSession(ctx, listener.Addr().String(), nil)
		if err != nil {
			ended <- err
			return
		}
		defer session.Close()
		stream, err := session.OpenStream(ctx, nil)
		if err != nil {
			ended <- err
			return
		}
		client := calls.NewClient(stream, nil)
		err = client.CallOneWay(ctx, []byte("hello"))
		ended <- errors.Join(err, client.Close())
		<-session.Done() // the server has closed it
	}()

	session, err := listener.Accept(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()
	stream, err := session.AcceptStream(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := func(ctx context.Context, request *calls.Request) ([]byte, error) {
		fmt.Printf("%s, one way: %v\n", request.Bytes(), request.IsOneWay())
		return nil, nil
	}
	err = calls.Serve(ctx, stream, handler, &calls.Config{RunningMax: 8, WaitingMax: 100})
	fmt.Println(err, <-ended)
	// Output:
	// hello, one way: true
	// <nil> <nil>
}

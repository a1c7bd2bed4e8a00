// SPDX-License-Identifier: MIT OR Apache-2.0

package calls

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	partywall "partywall.test/go"
)

// peerVariable is the environment variable that makes a process of this test program a server or a
// client of calls. Its value is a list of arguments, as for the Rust program
// crates/extras/examples/calls_peer, whose tasks are the same.
const peerVariable = "PARTYWALL_TEST_CALLS_PEER"

func TestMain(m *testing.M) {
	arguments := os.Getenv(peerVariable)
	if arguments == "" {
		os.Exit(m.Run())
	}
	if err := runPeer(strings.Fields(arguments)); err != nil {
		fmt.Fprintf(os.Stderr, "peer: %s: %v\n", arguments, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runPeer performs the task that the arguments of a peer process name. The arguments are the task,
// an address, a transport, and a number whose meaning depends on the task.
func runPeer(arguments []string) error {
	task, address := arguments[0], arguments[1]
	var config partywall.Config
	for _, w := range ways() {
		if w.name == arguments[2] {
			config = w.config
		}
	}
	number, err := strconv.Atoi(arguments[3])
	if err != nil {
		return err
	}
	if task == "serve" {
		return servePeer(address, &config, number)
	}
	ctx, cancel := context.WithTimeout(context.Background(), peerTime)
	defer cancel()
	session, err := partywall.DialSession(ctx, address, &config)
	if err != nil {
		return err
	}
	defer session.Close()
	stream, err := session.OpenStream(ctx, []byte("calls"))
	if err != nil {
		return err
	}
	client := NewClient(stream, nil)
	defer client.Close()
	switch task {
	case "call":
		return callPeer(ctx, client, number)
	case "busy":
		return exceedPeer(ctx, client, number)
	case "lost":
		return losePeer(ctx, client, number)
	}
	return fmt.Errorf("no task %q", task)
}

// counts are what a server has handled: the handlers that have begun to wait until their call is
// given up, those of them that have ended, and the one-way calls.
type counts struct{ begun, ended, oneWay atomic.Uint32 }

// servePeer is the task of a server: it answers the calls of one stream, and runs at most limit
// handlers.
func servePeer(address string, config *partywall.Config, limit int) error {
	listener, err := partywall.ListenSession(address, config)
	if err != nil {
		return err
	}
	fmt.Println("ready", listener.Addr())
	ctx := context.Background()
	session, err := listener.Accept(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	stream, err := session.AcceptStream(ctx)
	if err != nil {
		return err
	}
	var c counts
	code := uint32(0)
	limits := &Config{RunningMax: limit, WaitingMax: limit, ErrorLog: log.New(io.Discard, "", 0)}
	if err := Serve(ctx, stream, c.handle, limits); err != nil {
		code = 1
		var e *Error
		if errors.As(err, &e) {
			code = uint32(e.ErrorCode())
		}
	}
	fmt.Println("served", code)
	<-session.Done() // the client closes the session once it has received everything
	return nil
}

func (c *counts) handle(ctx context.Context, request *Request) ([]byte, error) {
	call := request.Bytes()
	switch call[0] {
	case 'e':
		return call, nil
	case 'f':
		return nil, &Failure{Code: binary.LittleEndian.Uint32(call[1:]), Detail: call[5:]}
	case 'w':
		c.begun.Add(1)
		fmt.Println("begun")
		<-ctx.Done()
		c.ended.Add(1)
		fmt.Println("ended")
		return nil, ctx.Err()
	case 'o':
		if request.IsOneWay() {
			c.oneWay.Add(1)
			return nil, nil
		}
	case 's':
		var answer []byte
		for _, count := range []*atomic.Uint32{&c.begun, &c.ended, &c.oneWay} {
			answer = binary.LittleEndian.AppendUint32(answer, count.Load())
		}
		return answer, nil
	}
	panic("a call that is not known")
}

// callPeer is a task of a client: it makes each kind of call.
func callPeer(ctx context.Context, client *Client, count int) error {
	for _, size := range []int{1, 16, 495, 496, 497, 1024, 65_536, 1 << 20, 4 << 20} {
		if err := callEcho(ctx, client, size); err != nil {
			return err
		}
	}
	if err := callAtOnce(ctx, client, count); err != nil {
		return err
	}
	for code, detail := range map[uint32]string{7: "why", codesReserved - 1: ""} {
		_, err := client.Call(ctx, append(binary.LittleEndian.AppendUint32([]byte("f"), code), detail...))
		var failure *Failure
		if !errors.As(err, &failure) || failure.Code != code || string(failure.Detail) != detail {
			return fmt.Errorf("a call that fails with %d: %v", code, err)
		}
	}
	if _, err := client.Call(ctx, []byte("p")); !errors.Is(err, ErrAborted) {
		return fmt.Errorf("a call whose handler panics: %v", err)
	}
	for range oneWayCalls {
		if err := client.CallOneWay(ctx, []byte("o")); err != nil {
			return err
		}
	}
	if err := reach(ctx, client, func(_, _, oneWay uint32) bool { return oneWay == oneWayCalls }); err != nil {
		return err
	}
	if err := giveUpPeer(ctx, client); err != nil {
		return err
	}
	fmt.Println("called", count)
	return nil
}

func callEcho(ctx context.Context, client *Client, size int) error {
	call := bytes.Repeat([]byte{byte(size)}, size)
	call[0] = 'e'
	answer, err := client.Call(ctx, call)
	if err != nil {
		return err
	}
	defer answer.Release()
	if !bytes.Equal(answer.Bytes(), call) {
		return fmt.Errorf("%d bytes are answered by %d others", size, answer.Len())
	}
	return nil
}

// callAtOnce makes count calls, 16 of them at a time, and checks their answers.
func callAtOnce(ctx context.Context, client *Client, count int) error {
	var next atomic.Int64
	var group sync.WaitGroup
	failures := make([]error, callsAtOnce)
	for i := range failures {
		group.Go(func() {
			for failures[i] == nil {
				index := next.Add(1) - 1
				if index >= int64(count) {
					return
				}
				failures[i] = callEcho(ctx, client, int(1+index*97%5000))
			}
		})
	}
	group.Wait()
	return errors.Join(failures...)
}

// giveUpPeer is a task of a client: it cancels calls, and lets the deadline of one pass. It checks
// that each handler ends.
func giveUpPeer(ctx context.Context, client *Client) error {
	given, cancel := context.WithCancel(ctx)
	defer cancel()
	calls, err := beginAll(given, client, 3)
	if err != nil {
		return err
	}
	if err := reach(ctx, client, func(begun, _, _ uint32) bool { return begun == 3 }); err != nil {
		return err
	}
	cancel()
	for _, call := range calls {
		if _, err := call.Wait(); err != context.Canceled {
			return fmt.Errorf("a cancelled call: %v", err)
		}
	}
	if err := reach(ctx, client, func(_, ended, _ uint32) bool { return ended == 3 }); err != nil {
		return err
	}
	late, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := client.Call(late, []byte("w")); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("a call without an answer: %v", err)
	}
	return reach(ctx, client, func(begun, ended, _ uint32) bool { return begun == ended })
}

// beginAll begins count calls whose handlers wait until the calls are canceled.
func beginAll(ctx context.Context, client *Client, count int) ([]*Call, error) {
	var calls []*Call
	for range count {
		call, err := client.Begin(ctx, []byte("w"))
		if err != nil {
			return nil, err
		}
		calls = append(calls, call)
	}
	return calls, nil
}

// exceedPeer is a task of a client: it makes as many calls as the server runs and keeps waiting,
// and one more, which the server must refuse as busy. In a blocking server of Rust a call waits
// until a thread of the program takes it. So a server whose threads are late may refuse an earlier
// call, and the task then begins again.
func exceedPeer(ctx context.Context, client *Client, limit int) error {
	for isLast := false; !isLast; {
		var err error
		if isLast, err = exceedOnce(ctx, client, 2*limit+1); err != nil {
			return err
		}
		for {
			if err = callEcho(ctx, client, 1); !errors.Is(err, ErrBusy) {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	fmt.Println("refused", limit)
	return nil
}

// exceedOnce makes count calls, one more than the server accepts, and cancels them once the server
// has refused one. It reports whether the server has refused the last call alone.
func exceedOnce(ctx context.Context, client *Client, count int) (bool, error) {
	given, cancel := context.WithCancel(ctx)
	defer cancel()
	calls, err := beginAll(given, client, count)
	if err != nil {
		return false, err
	}
	ended := make([]error, count)
	var group sync.WaitGroup
	for i, call := range calls {
		group.Go(func() {
			_, ended[i] = call.Wait()
			cancel()
		})
	}
	group.Wait()
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("no call of %d was refused: %w", count, err)
	}
	for i, err := range ended[:count-1] {
		if errors.Is(err, ErrBusy) {
			return false, nil
		}
		if err != context.Canceled {
			return false, fmt.Errorf("call %d was cancelled: %v", i, err)
		}
	}
	if err := ended[count-1]; !errors.Is(err, ErrBusy) {
		return false, fmt.Errorf("a call beyond the limits: %v", err)
	}
	return true, nil
}

// losePeer is a task of a client: it makes calls whose handlers wait, and checks that each fails
// when the server is killed.
func losePeer(ctx context.Context, client *Client, count int) error {
	calls, err := beginAll(ctx, client, count)
	if err != nil {
		return err
	}
	if err := reach(ctx, client, func(begun, _, _ uint32) bool { return begun == uint32(count) }); err != nil {
		return err
	}
	fmt.Println("begun", count)
	var codes []string
	for _, call := range calls {
		_, err := call.Wait()
		var e *Error
		if !errors.Is(err, ErrLost) || !errors.As(err, &e) {
			return fmt.Errorf("a call to a server that has gone: %v", err)
		}
		codes = append(codes, fmt.Sprint(uint32(e.ErrorCode())))
	}
	fmt.Println("lost", count, strings.Join(slices.Compact(codes), ","))
	return nil
}

// reach asks the server for its counts of handlers, again and again, until they are as expected.
func reach(ctx context.Context, client *Client, expected func(begun, ended, oneWay uint32) bool) error {
	for {
		answer, err := client.Call(ctx, []byte("s"))
		if err != nil {
			return err
		}
		var words [3]uint32
		for i := range words {
			words[i] = binary.LittleEndian.Uint32(answer.Bytes()[4*i:])
		}
		answer.Release()
		if expected(words[0], words[1], words[2]) {
			return nil
		}
	}
}

const (
	// peerTime is the longest time that a client process may take for its task.
	peerTime = 10 * time.Minute
	// callsAtOnce is the number of calls that a client has in flight at the same time.
	callsAtOnce = 16
	oneWayCalls = 10
)

// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallkitex

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/client/callopt"
	"github.com/cloudwego/kitex/pkg/connpool"
	"github.com/cloudwego/kitex/pkg/kerrors"
	"github.com/cloudwego/kitex/pkg/remote"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/transport"

	partywall "partywall.test/go"
)

// protocols are the protocols with which the tests make calls, each with its options.
var protocols = map[string][]client.Option{
	"TTHeader": {client.WithTransportProtocol(transport.TTHeaderFramed | transport.GRPCStreaming)},
	"long connections": {
		client.WithTransportProtocol(transport.TTHeaderFramed | transport.GRPCStreaming),
		client.WithLongConnection(connpool.IdleConfig{
			MaxIdlePerAddress: 8, MaxIdleGlobal: 8, MaxIdleTimeout: testTime,
		}),
	},
	"gRPC": {client.WithTransportProtocol(transport.GRPC)},
}

// eachProtocol runs a test once for each transport and protocol, with a server in another process.
func eachProtocol(
	t *testing.T, test func(*testing.T, *serverProcess, testClient),
) {
	eachTransport(t, func(t *testing.T, transport string) {
		for name, options := range protocols {
			t.Run(name, func(t *testing.T) {
				s := startServer(t, "unix:"+t.TempDir()+"/s", transport, "")
				test(t, s, s.client(t, options...))
			})
		}
	})
}

// mustEcho makes a call with the body, and fails the test unless the same body comes back.
func mustEcho(t testing.TB, c testClient, body []byte) {
	t.Helper()
	answer, err := c.call(t.Context(), "echo", body)
	if err != nil {
		t.Error(err)
	} else if !bytes.Equal(answer, body) {
		t.Errorf("%d bytes come back as %d others", len(body), len(answer))
	}
}

// serverOf makes a call, and returns the process id of the server that answered.
func serverOf(t *testing.T, c testClient) (string, error) {
	answer, err := c.call(t.Context(), "peer", []byte{})
	if err != nil {
		return "", err
	}
	_, server, _ := strings.Cut(string(answer), "; ")
	return server, nil
}

func TestCallReturnsTheBytes(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ *serverProcess, c testClient) {
		for i, size := range []int{0, 1, 64, 4095, 4096, 65_536, 1 << 20, 3 << 20} {
			mustEcho(t, c, counted(i, size))
		}
	})
}

func TestCallsAtOnce(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ *serverProcess, c testClient) {
		var group sync.WaitGroup
		for i := range 16 {
			group.Go(func() {
				for j := range 20 {
					mustEcho(t, c, counted(i+j, i*j*101))
				}
			})
		}
		group.Wait()
	})
}

func TestHandlerKnowsTheOtherProcess(t *testing.T) {
	eachProtocol(t, func(t *testing.T, s *serverProcess, c testClient) {
		want := fmt.Sprintf("true %d %d %d; %d", os.Getpid(), os.Geteuid(), os.Getegid(),
			s.Process.Pid)
		for range 3 {
			answer, err := c.call(t.Context(), "peer", []byte{})
			if err != nil {
				t.Fatal(err)
			}
			if got := string(answer); got != want {
				t.Errorf("the handler answers %s, want %s", got, want)
			}
		}
	})
}

func TestStreamInBothDirections(t *testing.T) {
	eachProtocol(t, func(t *testing.T, s *serverProcess, c testClient) {
		stream, err := c.stream(t.Context(), "stream")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			body := counted(i, i*997)
			if err := stream.SendMsg(t.Context(), &payload{body}); err != nil {
				t.Fatal(err)
			}
			answer, err := recv(t.Context(), stream)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(answer, body) {
				t.Fatalf("message %d comes back with %d bytes", i, len(answer))
			}
		}
		if err := stream.CloseSend(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := recv(t.Context(), stream); err != io.EOF {
			t.Errorf("after its last message the stream ends with %v", err)
		}
	})
}

func TestStreamsFromTheServerAndToIt(t *testing.T) {
	eachProtocol(t, func(t *testing.T, s *serverProcess, c testClient) {
		down, err := c.stream(t.Context(), "down")
		if err != nil {
			t.Fatal(err)
		}
		if err := down.SendMsg(t.Context(), &payload{}); err != nil {
			t.Fatal(err)
		}
		if err := down.CloseSend(t.Context()); err != nil {
			t.Fatal(err)
		}
		received := 0
		for ; err == nil; received++ {
			var answer []byte
			answer, err = recv(t.Context(), down)
			if err == nil && !bytes.Equal(answer, counted(received, received*101)) {
				t.Fatalf("message %d differs", received)
			}
		}
		if err != io.EOF || received-1 != streamedMessages {
			t.Errorf("%d messages come, and then %v", received-1, err)
		}

		up, err := c.stream(t.Context(), "up")
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for i := range streamedMessages {
			sum += i * 101
			if err := up.SendMsg(t.Context(), &payload{counted(i, i*101)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := up.CloseSend(t.Context()); err != nil {
			t.Fatal(err)
		}
		answer, err := recv(t.Context(), up)
		if err != nil || string(answer) != strconv.Itoa(sum) {
			t.Errorf("the server has received %s bytes of %d, %v", answer, sum, err)
		}
	})
}

func TestDeadlineEndsACall(t *testing.T) {
	eachProtocol(t, func(t *testing.T, s *serverProcess, c testClient) {
		// A client that is late sends no request of a call whose deadline has passed, so the call
		// is made again with more time until a handler has begun.
		var hasBegun atomic.Bool
		ended := make(chan error, 1)
		go func() {
			var err error
			for left := 100 * time.Millisecond; left < testTime; left *= 2 {
				soon := client.NewCtxWithCallOptions(context.Background(),
					[]callopt.Option{callopt.WithRPCTimeout(left)})
				_, err = c.call(soon, "wait", nil)
				if !errors.Is(err, kerrors.ErrRPCTimeout) || hasBegun.Load() {
					break
				}
			}
			ended <- err
		}()
		s.mustReport(t, "waits")
		hasBegun.Store(true)
		if err := <-ended; !errors.Is(err, kerrors.ErrRPCTimeout) {
			t.Errorf("a call ends after its deadline with %v", err)
		}
		mustEcho(t, c, counted(1, 100)) // the client and the server go on
	})
}

func TestCancelEndsAStream(t *testing.T) {
	eachProtocol(t, func(t *testing.T, s *serverProcess, c testClient) {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := c.stream(ctx, "held")
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(ctx, &payload{counted(1, 10)}); err != nil {
			t.Fatal(err)
		}
		s.mustReport(t, "waits")
		cancel()
		if _, err := recv(ctx, stream); err == nil || err == io.EOF {
			t.Errorf("a stream that is cancelled ends with %v", err)
		}
		s.mustReport(t, "cancelled")
	})
}

// When the server is killed during a call, the call fails. The same client reaches the next server.
func TestKilledServer(t *testing.T) {
	eachProtocol(t, func(t *testing.T, s *serverProcess, c testClient) {
		mustEcho(t, c, counted(1, 100)) // a pool has a connection now
		ended := make(chan error)
		go func() {
			_, err := c.call(t.Context(), "wait", []byte{})
			ended <- err
		}()
		s.mustReport(t, "waits")
		s.kill()
		if err := <-ended; err == nil || errors.Is(err, kerrors.ErrRPCTimeout) {
			t.Errorf("a call to a killed server ends with %v", err)
		}
		if _, err := serverOf(t, c); err == nil {
			t.Error("a call without a server is answered")
		}

		next := startServer(t, s.address, s.transport, "")
		deadline := time.Now().Add(testTime)
		server, err := serverOf(t, c)
		for err != nil && time.Now().Before(deadline) {
			server, err = serverOf(t, c)
		}
		if err != nil || server != strconv.Itoa(next.Process.Pid) {
			t.Errorf("process %s answers, want %d; %v", server, next.Process.Pid, err)
		}
	})
}

func TestServerRefusesAUser(t *testing.T) {
	eachTransport(t, func(t *testing.T, transport string) {
		for name, options := range protocols {
			t.Run(name, func(t *testing.T) {
				s := startServer(t, "unix:"+t.TempDir()+"/s", transport, "deny")
				_, err := serverOf(t, s.client(t, options...))
				if err == nil {
					t.Error("a call of a refused user is answered")
				}
			})
		}
	})
}

func TestClientRefusesAServer(t *testing.T) {
	s := startServer(t, "unix:"+t.TempDir()+"/s", "shared memory", "")
	config := partywall.Config{Admit: onlyUID(uint32(os.Geteuid()) + 1)}
	c := newClient(t, &config, s.address, protocols["TTHeader"]...)
	if _, err := serverOf(t, c); err == nil ||
		!strings.Contains(err.Error(), "is not admitted") {
		t.Errorf("a call to a refused server ends with %v", err)
	}
}

func TestContextWithoutCallHasNoPeer(t *testing.T) {
	if _, ok := PeerFromContext(t.Context()); ok {
		t.Error("a context without a call has a peer")
	}
	ctx := rpcinfo.NewCtxWithRPCInfo(t.Context(), rpcinfo.NewRPCInfo(nil, nil, nil, nil, nil))
	if _, ok := PeerFromContext(ctx); ok {
		t.Error("a call without an origin has a peer")
	}
}

// A countedDialer is a Kitex dialer that counts the connections that it has made.
type countedDialer struct {
	remote.Dialer
	count atomic.Int64
}

func (d *countedDialer) DialTimeout(
	network, address string, timeout time.Duration,
) (net.Conn, error) {
	d.count.Add(1)
	return d.Dialer.DialTimeout(network, address, timeout)
}

// A pool of long connections uses a connection again, because the pool finds it under the network
// of the connection's remote address.
func TestPoolUsesAConnectionAgain(t *testing.T) {
	eachTransport(t, func(t *testing.T, transport string) {
		s := startServer(t, "unix:"+t.TempDir()+"/s", transport, "")
		var sessions partywall.Dialer
		dialer := &countedDialer{Dialer: NewDialer(&sessions)}
		options := append(protocols["long connections"], client.WithDialer(dialer))
		c := s.client(t, options...)
		for i := range 10 {
			mustEcho(t, c, counted(i, 100))
		}
		if count := dialer.count.Load(); count != 1 {
			t.Errorf("10 calls make %d connections", count)
		}
		if err := sessions.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A connection is no longer active once the server has closed it or has asked for no more streams.
// A pool drops such a connection.
func TestConnectionIsNotActiveWithoutItsServer(t *testing.T) {
	eachTransport(t, func(t *testing.T, transport string) {
		config := transports[transport]
		listener, err := partywall.ListenSession("unix:"+t.TempDir()+"/s", &config)
		if err != nil {
			t.Fatal(err)
		}
		for name, end := range map[string]func(*partywall.Stream) error{
			"stream closed": func(s *partywall.Stream) error { return s.Close() },
			"going away":    func(s *partywall.Stream) error { s.Session().GoAway(0); return nil },
		} {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), testTime)
				defer cancel()
				dialer := &partywall.Dialer{Config: config}
				accepted := acceptedStream(ctx, listener)
				conn, err := NewDialer(dialer).DialTimeout("unix", listener.Addr().String(), testTime)
				if err != nil {
					t.Fatal(err)
				}
				active := conn.(*clientConn)
				server := <-accepted
				if server == nil || !active.IsActive() {
					t.Fatal("a new connection is not active", server)
				}
				if err := end(server); err != nil {
					t.Error(err)
				}
				for active.IsActive() && ctx.Err() == nil {
					runtime.Gosched()
				}
				if ctx.Err() != nil {
					t.Error("the connection stays active")
				}
				if err := dialer.Close(); err != nil {
					t.Error(err)
				}
				select {
				case <-server.Session().Done():
				case <-ctx.Done():
					t.Error("the session of a closed dialer goes on")
				}
			})
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	})
}

// acceptedStream accepts the next session of a listener and its first stream, and sends the stream
// on the Go channel that it returns. After an error it only closes this Go channel.
func acceptedStream(
	ctx context.Context, listener *partywall.SessionListener,
) <-chan *partywall.Stream {
	accepted := make(chan *partywall.Stream, 1)
	go func() {
		defer close(accepted)
		session, err := listener.Accept(ctx)
		if err != nil {
			return
		}
		if stream, err := session.AcceptStream(ctx); err == nil {
			accepted <- stream
		}
	}()
	return accepted
}

// A resolver gives the network "unix", with the path of a socket or with the whole address
// "unix:/path". The dialer accepts both.
func TestDialerReadsAddressesOfResolvers(t *testing.T) {
	s := startServer(t, "unix:"+t.TempDir()+"/s", "shared memory", "")
	path := strings.TrimPrefix(s.address, "unix:")
	for _, address := range []string{path, s.address} {
		dialer := &partywall.Dialer{}
		conn, err := NewDialer(dialer).DialTimeout("unix", address, testTime)
		if err != nil {
			t.Fatal(err)
		}
		active := conn.(*clientConn)
		if !active.IsActive() {
			t.Error("a new connection is not active")
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if active.IsActive() {
			t.Error("a closed connection is active")
		}
		if err := conn.Close(); err == nil {
			t.Error("a connection is closed twice")
		}
		if err := dialer.Close(); err != nil {
			t.Error(err)
		}
	}
}

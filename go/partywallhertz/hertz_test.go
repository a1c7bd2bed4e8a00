// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallhertz

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/client"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/config"
	hertz "github.com/cloudwego/hertz/pkg/common/errors"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/cloudwego/hertz/pkg/network/standard"
	"github.com/cloudwego/hertz/pkg/protocol"

	partywall "partywall.test/go"
)

// Environment variables of the server process of a test: its address and its transport.
const (
	addressVariable   = "PARTYWALL_TEST_HERTZ_ADDRESS"
	transportVariable = "PARTYWALL_TEST_HERTZ_TRANSPORT"
)

// plainPrefix is the beginning of the address of a server that listens on a Unix socket of package
// net.
const plainPrefix = "plain:"

// testTime is the longest time that a test waits for one event.
const testTime = 30 * time.Second

func TestMain(m *testing.M) {
	hlog.SetLevel(hlog.LevelFatal)
	if address := os.Getenv(addressVariable); address != "" {
		fmt.Fprintln(os.Stderr, "server:", serve(address))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

var transports = map[string]*partywall.Config{
	"shared memory": {Transport: partywall.TransportSharedMemory},
	"untrusted": {
		Transport: partywall.TransportSharedMemory, Trust: partywall.TrustNobody,
	},
	"socket": {Transport: partywall.TransportSocket},
}

// newServer returns a server with the routes that the tests request. It calls the function events
// for each request whose handler waits.
func newServer(options []config.Option, events func(string)) *server.Hertz {
	options = append(options, server.WithMaxRequestBodySize(64<<20),
		server.WithExitWaitTime(testTime))
	h := server.New(options...)
	h.POST("/echo", func(_ context.Context, c *app.RequestContext) {
		c.Data(200, "application/octet-stream", c.Request.Body())
	})
	h.GET("/peer", func(ctx context.Context, c *app.RequestContext) {
		peer, ok := PeerFromContext(ctx)
		c.String(200, "%v %d %d %d; %d", ok, peer.PID, peer.UID, peer.GID, os.Getpid())
	})
	h.GET("/stream", func(_ context.Context, c *app.RequestContext) {
		c.SetBodyStream(bytes.NewReader(counted(5, 1_000_000)), -1) // in chunks
	})
	h.GET("/wait", func(_ context.Context, c *app.RequestContext) {
		events("waits")
		select {} // the process ends
	})
	return h
}

// serve is what the server process of a test does. It writes a line to its output for each event.
func serve(address string) error {
	options, err := serverOptions(address)
	if err != nil {
		return err
	}
	fmt.Println("listens")
	h := newServer(options, func(event string) { fmt.Println(event) })
	return h.Engine.Run()
}

// serverOptions listens on the address, and returns the options of a server for this listener. If
// the address begins with "plain:", the listener is one of package net.
func serverOptions(address string) ([]config.Option, error) {
	if path, ok := strings.CutPrefix(address, plainPrefix); ok {
		listener, err := net.Listen("unix", path)
		if err != nil {
			return nil, err
		}
		return []config.Option{
			server.WithListener(listener), server.WithTransport(standard.NewTransporter),
			server.WithNetwork("plain"), // of "unix" Hertz would remove the file before it serves
		}, nil
	}
	listener, err := partywall.Listen(address, transports[os.Getenv(transportVariable)])
	if err != nil {
		return nil, err
	}
	return ServerOptions(listener), nil
}

type serverProcess struct {
	*exec.Cmd
	address, transport string
	events             *bufio.Scanner
}

func startServer(t testing.TB, address, transport string) *serverProcess {
	t.Helper()
	s := &serverProcess{Cmd: exec.Command(os.Args[0]), address: address, transport: transport}
	s.Env = append(os.Environ(), addressVariable+"="+address, transportVariable+"="+transport)
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
	s.mustReport(t, "listens")
	return s
}

// mustReport waits for the next event that the server process reports, and fails the test unless
// the event is want.
func (s *serverProcess) mustReport(t testing.TB, want string) {
	t.Helper()
	deadline := time.AfterFunc(testTime, func() { _ = s.Process.Kill() })
	defer deadline.Stop()
	if !s.events.Scan() || s.events.Text() != want {
		t.Fatalf("the server reports %q, want %q", s.events.Text(), want)
	}
}

func (s *serverProcess) kill() {
	_ = s.Process.Kill()
	_ = s.Wait()
}

// eachTransport runs a test once for each transport, with a server in another process.
func eachTransport(t *testing.T, test func(*testing.T, *serverProcess)) {
	for name := range transports {
		t.Run(name, func(t *testing.T) {
			test(t, startServer(t, "unix:"+filepath.Join(t.TempDir(), "s"), name))
		})
	}
}

func newClient(
	t testing.TB, address string, c *partywall.Config, options ...config.ClientOption,
) *client.Client {
	t.Helper()
	dialer := &partywall.Dialer{Config: *c}
	made, err := client.NewClient(append(options, client.WithDialTimeout(testTime),
		client.WithDialer(NewDialer(dialer, address)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		made.CloseIdleConnections()
		if err := dialer.Close(); err != nil {
			t.Error(err)
		}
	})
	return made
}

func (s *serverProcess) client(t *testing.T, options ...config.ClientOption) *client.Client {
	return newClient(t, s.address, transports[s.transport], options...)
}

// mustPost posts a body, and fails the test unless the same body comes back.
func mustPost(t *testing.T, c *client.Client, body []byte) {
	t.Helper()
	request, response := protocol.AcquireRequest(), protocol.AcquireResponse()
	defer protocol.ReleaseRequest(request)
	defer protocol.ReleaseResponse(response)
	request.SetMethod("POST")
	request.SetRequestURI("http://app/echo")
	request.SetBody(body)
	if err := c.DoTimeout(context.Background(), request, response, testTime); err != nil {
		t.Error(err)
	} else if response.StatusCode() != 200 || !bytes.Equal(response.Body(), body) {
		t.Errorf("%d bytes come back as %d others, status %d", len(body), len(response.Body()),
			response.StatusCode())
	}
}

func mustGet(t *testing.T, c *client.Client, path string) string {
	t.Helper()
	status, body, err := c.GetTimeout(context.Background(), nil, "http://app"+path, testTime)
	if err != nil || status != 200 {
		t.Fatalf("%s: status %d, %v", path, status, err)
	}
	return string(body)
}

func TestPostReturnsTheBytes(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		c := s.client(t)
		for i, size := range []int{0, 1, 64, 4095, 4096, 65_536, 1 << 20, 5 << 20} {
			mustPost(t, c, counted(i, size))
		}
	})
}

func TestRequestsAtOnce(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		c := s.client(t)
		var group sync.WaitGroup
		for i := range 16 {
			group.Go(func() {
				for j := range 30 {
					mustPost(t, c, counted(i+j, i*j*101))
				}
			})
		}
		group.Wait()
	})
}

func TestChunkedBodyArrives(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		if mustGet(t, s.client(t), "/stream") != string(counted(5, 1_000_000)) {
			t.Error("the body differs")
		}
	})
}

func TestHandlerKnowsTheOtherProcess(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		want := fmt.Sprintf("true %d %d %d; %d", os.Getpid(), os.Geteuid(), os.Getegid(),
			s.Process.Pid)
		if got := mustGet(t, s.client(t), "/peer"); got != want {
			t.Errorf("the handler answers %s, want %s", got, want)
		}
	})
}

func TestTimeoutOfReading(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		c := s.client(t, client.WithClientReadTimeout(100*time.Millisecond))
		_, _, err := c.Get(context.Background(), nil, "http://app/wait")
		if !errors.Is(err, hertz.ErrTimeout) {
			t.Errorf("a request ends after its time-out with %v", err)
		}
		s.mustReport(t, "waits")
		mustPost(t, s.client(t), counted(1, 100)) // the server goes on
	})
}

// When the server is killed during a request, the request fails. The same client, whose pool has
// connections to the dead server, reaches the next server on the address.
func TestKilledServer(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		c := s.client(t)
		mustGet(t, c, "/peer")
		ended := make(chan error)
		go func() {
			_, _, err := c.GetTimeout(context.Background(), nil, "http://app/wait", testTime)
			ended <- err
		}()
		s.mustReport(t, "waits")
		s.kill()
		if err := <-ended; err == nil || errors.Is(err, hertz.ErrTimeout) {
			t.Errorf("a request to a killed server ends with %v", err)
		}
		_, _, err := c.Get(context.Background(), nil, "http://app/peer")
		if err == nil {
			t.Error("a request without a server is answered")
		}

		next := startServer(t, s.address, s.transport)
		if answer := mustGet(t, c, "/peer"); !strings.HasSuffix(answer,
			"; "+strconv.Itoa(next.Process.Pid)) {
			t.Errorf("%s answers, want process %d", answer, next.Process.Pid)
		}
	})
}

func TestPooledConnectionOfKilledServerIsReplaced(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		c := s.client(t)
		mustGet(t, c, "/peer")
		s.kill()
		next := startServer(t, s.address, s.transport)
		if answer := mustGet(t, c, "/peer"); !strings.HasSuffix(answer,
			"; "+strconv.Itoa(next.Process.Pid)) {
			t.Errorf("%s answers, want process %d", answer, next.Process.Pid)
		}
	})
}

func TestShutdownEndsTheServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := partywall.Listen("unix:"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := newServer(ServerOptions(listener), func(string) {})
	ran := make(chan error)
	go func() { ran <- h.Engine.Run() }()
	mustPost(t, newClient(t, "unix:"+path, &partywall.Config{}), counted(1, 1000))
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	defer cancel()
	if err := h.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown returns %v", err)
	}
	if err := <-ran; err != nil {
		t.Errorf("the server ends with %v", err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket file stays behind: %v", err)
	}
}

func TestNoTLS(t *testing.T) {
	c := newClient(t, "unix:/nowhere", &partywall.Config{})
	_, _, err := c.Get(context.Background(), nil, "https://app/")
	if !errors.Is(err, errTLS) {
		t.Errorf("a request with TLS ends with %v", err)
	}
	if _, ok := PeerFromContext(context.Background()); ok {
		t.Error("a context without a request has a peer")
	}
}

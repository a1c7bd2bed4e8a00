// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallkitex

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/klog"
	"github.com/cloudwego/kitex/pkg/remote/trans/gonet"
	"github.com/cloudwego/kitex/server"

	partywall "partywall.test/go"
)

// Environment variables of the server process of a test: its address, its transport, and whether it
// admits only users other than this one.
const (
	addressVariable   = "PARTYWALL_TEST_KITEX_ADDRESS"
	transportVariable = "PARTYWALL_TEST_KITEX_TRANSPORT"
	denyVariable      = "PARTYWALL_TEST_KITEX_DENY"
)

// Two prefixes of the addresses of servers on a Unix socket: one for a server with the handlers of
// package gonet, and one for a server with those of netpoll.
const (
	plainPrefix   = "plain:"
	netpollPrefix = "netpoll:"
)

// testTime is the longest time that a test waits for one event.
const testTime = 30 * time.Second

func TestMain(m *testing.M) {
	klog.SetLevel(klog.LevelFatal)
	if address := os.Getenv(addressVariable); address != "" {
		fmt.Fprintln(os.Stderr, "server:", serve(address))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

var transports = map[string]partywall.Config{
	"shared memory": {Transport: partywall.TransportSharedMemory},
	"untrusted": {
		Transport: partywall.TransportSharedMemory, Trust: partywall.TrustNobody,
	},
	"socket": {Transport: partywall.TransportSocket},
}

func eachTransport(t *testing.T, test func(*testing.T, string)) {
	for name := range transports {
		t.Run(name, func(t *testing.T) { test(t, name) })
	}
}

// serve is what the server process of a test does: it listens on the address and answers calls.
func serve(address string) error {
	config := transports[os.Getenv(transportVariable)]
	if os.Getenv(denyVariable) != "" {
		config.Admit = onlyUID(uint32(os.Geteuid()) + 1)
	}
	options, err := serverOptions(address, &config)
	if err != nil {
		return err
	}
	s := server.NewServer(options...)
	if err := s.RegisterService(&service, &struct{}{}); err != nil {
		return err
	}
	fmt.Println("listens")
	return s.Run()
}

// serverOptions listens on the address, and returns the options of a server for this listener. If
// the address has one of the prefixes, the listener is a plain Unix socket.
func serverOptions(address string, config *partywall.Config) ([]server.Option, error) {
	kind, path, _ := strings.Cut(address, ":")
	switch kind + ":" {
	case plainPrefix, netpollPrefix:
		listener, err := net.Listen("unix", path)
		options := []server.Option{server.WithListener(listener)}
		if kind+":" == plainPrefix {
			options = append(options,
				server.WithTransServerFactory(gonet.NewTransServerFactory()),
				server.WithTransHandlerFactory(gonet.NewSvrTransHandlerFactory()))
		}
		return options, err
	}
	listener, err := partywall.Listen(address, config)
	if err != nil {
		return nil, err
	}
	return ServerOptions(listener), nil
}

func onlyUID(uid uint32) func(partywall.Peer) error {
	return func(peer partywall.Peer) error {
		if !peer.HasCredentials || peer.UID != uid {
			return fmt.Errorf("%v is not admitted", peer)
		}
		return nil
	}
}

type serverProcess struct {
	*exec.Cmd
	address, transport string
	events             *bufio.Scanner
}

func startServer(t testing.TB, address, transport, deny string) *serverProcess {
	t.Helper()
	s := &serverProcess{Cmd: exec.Command(os.Args[0]), address: address, transport: transport}
	s.Env = append(os.Environ(), addressVariable+"="+address, transportVariable+"="+transport,
		denyVariable+"="+deny)
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

func (s *serverProcess) client(t testing.TB, options ...client.Option) testClient {
	config := transports[s.transport]
	return newClient(t, &config, s.address, options...)
}

func newClient(
	t testing.TB, config *partywall.Config, address string, options ...client.Option,
) testClient {
	t.Helper()
	dialer := &partywall.Dialer{Config: *config}
	options = append(ClientOptions(dialer, address), options...)
	options = append(options, client.WithDestService("test"), client.WithRPCTimeout(testTime),
		client.WithConnectTimeout(testTime))
	c, err := client.NewClient(&service, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.(io.Closer).Close(); err != nil {
			t.Error(err)
		}
		if err := dialer.Close(); err != nil {
			t.Error(err)
		}
	})
	return testClient{c}
}

// plainClient returns a client of a server on a plain Unix socket, with the connections of netpoll
// or of package gonet.
func plainClient(t testing.TB, path string, isNetpoll bool, options ...client.Option) testClient {
	t.Helper()
	options = append(options, client.WithDestService("test"), client.WithRPCTimeout(testTime),
		client.WithConnectTimeout(testTime), client.WithHostPorts(path))
	if !isNetpoll {
		options = append(options, client.WithDialer(gonet.NewDialer()),
			client.WithTransHandlerFactory(gonet.NewCliTransHandlerFactory()))
	}
	c, err := client.NewClient(&service, options...)
	if err != nil {
		t.Fatal(err)
	}
	return testClient{c}
}

// counted returns size bytes, which differ for each start.
func counted(start, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(start + i*7 + i>>8)
	}
	return b
}

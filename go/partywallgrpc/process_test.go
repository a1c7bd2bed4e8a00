// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallgrpc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	pb "google.golang.org/grpc/interop/grpc_testing"

	partywall "partywall.test/go"
	"partywall.test/go/partywallgrpc"
)

// Environment variables of the server process of a test: its address, its transport, and whether it
// admits only users other than this one.
const (
	addressVariable   = "PARTYWALL_TEST_GRPC_ADDRESS"
	transportVariable = "PARTYWALL_TEST_GRPC_TRANSPORT"
	denyVariable      = "PARTYWALL_TEST_GRPC_DENY"
)

// plainPrefix is the beginning of the address of a server that listens on a Unix socket of package
// net.
const plainPrefix = "plain:"

// testTime is the longest time that a test waits for one event.
const testTime = 30 * time.Second

func TestMain(m *testing.M) {
	if address := os.Getenv(addressVariable); address != "" {
		fmt.Fprintln(os.Stderr, "server:", serve(address))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serve is what the server process of a test does. It writes a line to its output when it listens,
// and a line for each event of its calls.
func serve(address string) error {
	admit := partywallgrpc.OnlyUIDs(uint32(os.Geteuid()))
	if os.Getenv(denyVariable) != "" {
		admit = partywallgrpc.OnlyUIDs(uint32(os.Geteuid()) + 1)
	}
	var listener net.Listener
	var options []grpc.ServerOption
	var err error
	if path, ok := strings.CutPrefix(address, plainPrefix); ok {
		listener, err = net.Listen("unix", path)
	} else {
		listener, err = partywall.Listen(address, transports[os.Getenv(transportVariable)])
		options = append(options, grpc.Creds(partywallgrpc.NewCredentials(admit)))
	}
	if err != nil {
		return err
	}
	server := grpc.NewServer(options...)
	pb.RegisterTestServiceServer(server, testServer{events: os.Stdout})
	fmt.Println("listens")
	return server.Serve(listener)
}

var transports = map[string]*partywall.Config{
	"shared memory": {Transport: partywall.TransportSharedMemory},
	"untrusted": {
		Transport: partywall.TransportSharedMemory, Trust: partywall.TrustNobody,
	},
	"socket": {Transport: partywall.TransportSocket},
}

// eachTransport runs a test once for each transport, with a server in another process.
func eachTransport(t *testing.T, test func(*testing.T, *serverProcess)) {
	for name := range transports {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			test(t, startServer(t, "unix:"+filepath.Join(directory, "s"), name, ""))
		})
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

// client returns a client of the server process, with a dialer of its own. After a failure the
// client connects again without a long pause.
func (s *serverProcess) client(t testing.TB, options ...grpc.DialOption) pb.TestServiceClient {
	t.Helper()
	dialer := &partywall.Dialer{Config: *transports[s.transport]}
	soon := backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second / 10}
	options = append(options, grpc.WithConnectParams(
		grpc.ConnectParams{Backoff: soon, MinConnectTimeout: testTime}))
	client, err := partywallgrpc.NewClient(s.address, dialer, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), dialer.Close()); err != nil {
			t.Error(err)
		}
	})
	return pb.NewTestServiceClient(client)
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	t.Cleanup(cancel)
	return ctx
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallgrpc_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	partywall "partywall.test/go"
	"partywall.test/go/partywallgrpc"
)

func TestBothSidesKnowTheOtherProcess(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *serverProcess) {
		var server peer.Peer
		answer, err := s.client(t).UnaryCall(
			testContext(t), &pb.SimpleRequest{}, grpc.Peer(&server))
		if err != nil {
			t.Fatal(err)
		}
		self := partywall.Peer{
			PID: os.Getpid(), UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()),
		}
		if answer.GetUsername() != identity(self) {
			t.Errorf("the server sees %s, want %s", answer.GetUsername(), identity(self))
		}
		info, ok := server.AuthInfo.(partywallgrpc.AuthInfo)
		if !ok || info.SecurityLevel != credentials.PrivacyAndIntegrity ||
			info.Peer.PID != s.Process.Pid || info.Peer.UID != self.UID {
			t.Errorf("the client sees %+v, want process %d", server.AuthInfo, s.Process.Pid)
		}
		if server.Addr.Network() != "partywall" || server.Addr.String() != s.address {
			t.Errorf("the address of the server is %v", server.Addr)
		}
	})
}

func TestServerRefusesOtherUsers(t *testing.T) {
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	s := startServer(t, address, "shared memory", "deny")
	_, err := s.client(t).UnaryCall(testContext(t), &pb.SimpleRequest{ResponseSize: waitSize})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a call of a refused user ends with %v", err)
	}
	s.kill()
	if s.events.Scan() {
		t.Errorf("the server has begun the call: %s", s.events.Text())
	}
}

func TestClientRefusesServersOfOtherUsers(t *testing.T) {
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	s := startServer(t, address, "shared memory", "")
	others := partywallgrpc.NewCredentials(partywallgrpc.OnlyUIDs(uint32(os.Geteuid()) + 1))
	client := s.client(t, grpc.WithTransportCredentials(others))
	_, err := client.UnaryCall(testContext(t), &pb.SimpleRequest{ResponseSize: waitSize})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "not of a user") {
		t.Errorf("a call to a refused server ends with %v", err)
	}
}

// Over TCP the kernel identifies no peer. Such a peer is admitted only by a function that the
// application passes.
func TestPeerWithoutCredentials(t *testing.T) {
	listener, err := partywall.Listen("tcp:127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := listener.Addr().String()
	var dialer partywall.Dialer
	defer dialer.Close()
	dialed := make(chan net.Conn, 1)
	go func() {
		conn, err := dialer.DialContext(context.Background(), "", address)
		if err != nil {
			t.Error(err)
		}
		dialed <- conn
	}()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	defer func() { _ = (<-dialed).Close() }()

	for name, admit := range map[string]func(partywall.Peer) error{
		"nil": nil, "user 0": partywallgrpc.OnlyUIDs(0),
	} {
		if _, _, err := partywallgrpc.NewCredentials(admit).ServerHandshake(conn); err == nil {
			t.Errorf("%s: a peer without credentials is admitted", name)
		}
	}
	all := partywallgrpc.NewCredentials(func(partywall.Peer) error { return nil })
	_, info, err := all.ServerHandshake(conn)
	if err != nil {
		t.Fatal(err)
	}
	if level := info.(partywallgrpc.AuthInfo).SecurityLevel; level != credentials.NoSecurity {
		t.Errorf("the level of a peer without credentials is %v", level)
	}
}

func TestOtherConnectionsHaveNoPeer(t *testing.T) {
	conn, other := net.Pipe()
	defer conn.Close()
	defer other.Close()
	all := partywallgrpc.NewCredentials(func(partywall.Peer) error { return nil })
	if _, _, err := all.ServerHandshake(conn); err == nil {
		t.Error("the server accepts a pipe")
	}
	if _, _, err := all.ClientHandshake(context.Background(), "", conn); err == nil {
		t.Error("the client accepts a pipe")
	}
	if _, ok := partywallgrpc.PeerFromContext(context.Background()); ok {
		t.Error("a context without a call has a peer")
	}
}

func TestCloneHasItsOwnServerName(t *testing.T) {
	first := partywallgrpc.NewCredentials(nil)
	second := first.Clone()
	if info := second.Info(); info.SecurityProtocol != "partywall" {
		t.Errorf("the protocol is %q", info.SecurityProtocol)
	}
	if first == second {
		t.Error("a clone is the original")
	}
}

func TestWrongAddressIsNoTarget(t *testing.T) {
	var dialer partywall.Dialer
	if client, err := partywallgrpc.NewClient("/run/app.sock", &dialer); err == nil {
		t.Errorf("there is a client of %s", client.Target())
	}
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"partywall.test/go/internal/handshake"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/session"
)

// peerVariable names the command `partywall` of the Rust implementation, which tests take as peer.
const peerVariable = "PARTYWALL_PEER"

// rustPeer returns the path of the command, or skips the test.
func rustPeer(t *testing.T) string {
	t.Helper()
	path := os.Getenv(peerVariable)
	if path == "" {
		t.Skipf("%s does not name the command partywall", peerVariable)
	}
	return path
}

// A socketEnvironment admits every peer and has no shared memory.
type socketEnvironment struct{}

func (socketEnvironment) Judge(handshake.Sender, int) (bool, error) { return false, nil }
func (socketEnvironment) MakeRegion([16]byte) (handshake.Offered, layout.FallbackReason) {
	return handshake.Offered{}, layout.ReasonPolicy
}
func (socketEnvironment) MapRegion(int, layout.Expectation) (layout.FallbackReason, error) {
	return layout.ReasonPolicy, nil
}
func (socketEnvironment) TakeDoorbells(int, int) error { return nil }
func (socketEnvironment) Close(int)                    {}

// agree makes the handshake of a session over a socket without shared memory, and starts it.
func agree(t *testing.T, conn net.Conn, role uint32) *Session {
	t.Helper()
	const messageMax, window, streams = 1 << 30, 256 << 10, 256
	hello := layout.Hello{
		VersionMin: layout.ProtocolVersionMin, VersionMax: layout.ProtocolVersionMax, Features: layout.FeatureSocket,
		Service: layout.ServiceSession, FallbackReason: layout.ReasonPolicy, MapMax: 1 << 30,
		MessageMax: messageMax, PeerBlocksMax: 64, SegmentsMax: 8, PID: uint32(os.Getpid()),
		Nonce: handshake.NewNonce(), StreamWindow: window, StreamsMax: streams,
	}
	machine := handshake.New(handshake.Terms{Role: role, Hello: hello, Pidfd: -1}, socketEnvironment{})
	if err := machine.Start(); err != nil {
		t.Fatal(err)
	}
	var outcome *handshake.Outcome
	for outcome == nil {
		send(t, conn, machine)
		b := make([]byte, machine.Wanted())
		n, err := conn.Read(b)
		if err != nil {
			t.Fatalf("the peer hung up within the handshake: %v", err)
		}
		outcome, err = machine.Receive(handshake.Arrival{Bytes: b[:n]})
		if err != nil {
			t.Fatal(err)
		}
	}
	send(t, conn, machine)
	socket, err := NewSocket(conn, nil, messageMax)
	if err != nil {
		t.Fatal(err)
	}
	s := Start(socket, session.New(session.Config{
		Role:           role,
		Limits:         layout.Limits{MessageMax: messageMax},
		Window:         window,
		StreamsMax:     streams,
		PeerMessageMax: outcome.Peer.MessageMax,
		PeerWindow:     outcome.Peer.StreamWindow,
		PeerStreamsMax: outcome.Peer.StreamsMax,
	}, nil), 5*time.Second)
	t.Cleanup(func() { s.Close(0, "") })
	return s
}

func send(t *testing.T, conn net.Conn, machine *handshake.Machine) {
	t.Helper()
	if flight := machine.Flight(); len(flight.Bytes) > 0 {
		if _, err := conn.Write(flight.Bytes); err != nil {
			t.Fatal(err)
		}
	}
}

// startPeer starts the command, and waits until the socket path is there.
func startPeer(t *testing.T, program string, path string, arguments ...string) {
	t.Helper()
	command := exec.Command(program, arguments...)
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	await(t, func() bool {
		conn, err := net.Dial("unix", path)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// await waits for a condition.
func await(t *testing.T, condition func() bool) {
	t.Helper()
	ctx := within(t)
	for !condition() {
		select {
		case <-ctx.Done():
			t.Fatal("the condition never holds")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// exchange sends bytes in pieces of many lengths, and compares what comes back.
func exchange(ctx context.Context, t *testing.T, conn io.ReadWriter, finish func() error) {
	t.Helper()
	var want []byte
	for i, n := range []int{1, 48, 4096, 16368, 16369, 65536, 65537, 1 << 20, 3} {
		want = append(want, payload(n, i)...)
	}
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := conn.Write(want); err != nil {
			t.Error(err)
		}
		if err := finish(); err != nil {
			t.Error(err)
		}
	})
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d came back, %v", len(got), len(want), err)
	}
	group.Wait()
}

// A session of ours carries bytes to a server that the peer's proxy stands before.
func TestRustProxyServesOurStreams(t *testing.T) {
	program := rustPeer(t)
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	path := filepath.Join(t.TempDir(), "session")
	startPeer(t, program, path, "proxy", "--listen", "unix:"+path, "--to", "plain:tcp:"+echo.Addr().String())
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := agree(t, conn, layout.RoleConnector)
	ctx := within(t)
	if err := s.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			stream, err := s.Open(ctx, 1, nil)
			if err != nil {
				t.Error(err)
				return
			}
			exchange(ctx, t, stream, func() error { stream.CloseWrite(); return nil })
			_ = stream.Close()
		})
	}
	group.Wait()
	if err := s.Drained(ctx); err != nil {
		t.Error(err)
	}
}

// The peer's proxy carries the bytes of its clients to a session that we serve.
func TestOurSessionServesRustProxy(t *testing.T) {
	program := rustPeer(t)
	front := filepath.Join(t.TempDir(), "front")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx := within(t)
	go serve(ctx, t, listener)
	startPeer(t, program, front, "proxy", "--listen", "plain:unix:"+front, "--to",
		"tcp:"+listener.Addr().String())
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			conn, err := net.Dial("unix", front)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			exchange(ctx, t, conn, conn.(*net.UnixConn).CloseWrite)
		})
	}
	group.Wait()
}

// serve accepts sessions, and echoes the bytes of each stream.
func serve(ctx context.Context, t *testing.T, listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		s := agree(t, conn, layout.RoleAcceptor)
		go func() {
			for {
				stream, err := s.Accept(ctx)
				var e *session.Error
				if errors.As(err, &e) || ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				go func() {
					_, _ = io.Copy(stream, stream)
					stream.CloseWrite()
				}()
			}
		}()
	}
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package mux

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/wire"
)

// peerVariable is the environment variable that names the command `partywall` of the Rust
// implementation, which tests take as peer.
const peerVariable = "PARTYWALL_PROGRAM"

// rustPeer returns the path of the command `partywall` of the Rust implementation, or skips the
// test if it is not given.
func rustPeer(t *testing.T) string {
	t.Helper()
	path := os.Getenv(peerVariable)
	if path == "" {
		t.Skipf("%s does not name the command partywall", peerVariable)
	}
	return path
}

// startPeer starts the command `partywall`, and waits until the socket file at path exists.
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

// exchange sends bytes in pieces of many lengths, and compares them with the bytes that come back.
func exchange(t *testing.T, conn io.ReadWriter, finish func() error) {
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

// A session of the Go module opens streams to the Rust proxy, which carries their bytes to a server
// and back.
func TestRustProxyServesOurStreams(t *testing.T) {
	program := rustPeer(t)
	echo := echoServer(t)
	path := filepath.Join(t.TempDir(), "session")
	startPeer(t, program, path, "proxy", "--listen", "unix:"+path, "--to", "plain:tcp:"+echo)
	for _, transport := range transports[:3] {
		t.Run(transport.name, func(t *testing.T) {
			ctx := within(t)
			settings := transport.settings(layout.RoleConnector)
			address := wire.Address{Network: "unix", Name: path}
			connection, err := wire.Dial(ctx, address, &settings, testDeadline)
			if err != nil {
				t.Fatal(err)
			}
			s := startOver(connection, layout.RoleConnector)
			defer s.Close(0, "")
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
					exchange(t, stream, func() error { stream.CloseWrite(); return nil })
					_ = stream.Close()
				})
			}
			group.Wait()
			if err := s.Drained(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// The Rust proxy carries the bytes of its clients in streams to a session of the Go module.
func TestOurSessionServesRustProxy(t *testing.T) {
	program := rustPeer(t)
	for _, transport := range transports {
		t.Run(transport.name, func(t *testing.T) {
			ctx := within(t)
			listener := transport.listen(t)
			defer listener.Close()
			go serve(ctx, listener)
			front := filepath.Join(t.TempDir(), "front")
			startPeer(t, program, front, "proxy", "--listen", "plain:unix:"+front, "--to",
				listener.Address().String())
			var group sync.WaitGroup
			for range 20 {
				group.Go(func() {
					conn, err := net.Dial("unix", front)
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					exchange(t, conn, conn.(*net.UnixConn).CloseWrite)
				})
			}
			group.Wait()
		})
	}
}

// echoServer returns the address of a plain socket server that sends back the bytes of each
// connection.
func echoServer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return listener.Addr().String()
}

func serve(ctx context.Context, listener *wire.Listener) {
	for {
		connection, err := listener.Accept(ctx)
		if err != nil {
			return
		}
		s := startOver(connection, layout.RoleAcceptor)
		go func() {
			defer s.Close(0, "")
			for {
				stream, err := s.Accept(ctx)
				if err != nil {
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

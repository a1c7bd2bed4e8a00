// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build linux

package partywall

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// acceptOne accepts one socket of a listener whose net.ListenConfig has PassCredentials, and makes
// a session on the socket by AcceptSession.
func acceptOne(
	t *testing.T, ctx context.Context, network, address string, config *Config,
) (net.Addr, chan error, chan *Session) {
	t.Helper()
	bind := net.ListenConfig{Control: PassCredentials}
	listener, err := bind.Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	failed, accepted := make(chan error, 1), make(chan *Session, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			failed <- err
			return
		}
		session, err := AcceptSession(ctx, conn, config)
		if err != nil {
			failed <- err
			return
		}
		accepted <- session
	}()
	return listener.Addr(), failed, accepted
}

func TestAcceptSessionOnSocketOfAnotherListener(t *testing.T) {
	for network, address := range map[string]string{
		"unix": filepath.Join(t.TempDir(), "s"), "tcp": "127.0.0.1:0",
	} {
		t.Run(network, func(t *testing.T) {
			at, failed, accepted := acceptOne(t, t.Context(), network, address, nil)
			client, err := DialSession(t.Context(), network+":"+at.String(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			var server *Session
			select {
			case server = <-accepted:
			case err := <-failed:
				t.Fatal(err)
			}
			defer server.Close()
			isUnix := network == "unix"
			if peer := server.Peer(); peer.HasCredentials != isUnix ||
				isUnix && (peer.PID != os.Getpid() || peer.UID != uint32(os.Geteuid())) {
				t.Errorf("the peer is %v", peer)
			}
			if server.Transport().IsShared != isUnix || client.Transport().IsShared != isUnix {
				t.Errorf("the transport is %v, %v", server.Transport(), client.Transport())
			}
			mustPass(t, client, server)
		})
	}
}

// mustPass sends bytes in a stream that the client opens, and fails the test unless the server
// receives the same bytes.
func mustPass(t *testing.T, client, server *Session) {
	t.Helper()
	sent, err := client.OpenStream(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sent.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	received, err := server.AcceptStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(received, b); err != nil || string(b) != "hello" {
		t.Errorf("%q comes: %v", b, err)
	}
}

func TestAcceptSessionAsksAdmit(t *testing.T) {
	refused := errors.New("refused by the test")
	config := &Config{Admit: func(Peer) error { return refused }}
	path := filepath.Join(t.TempDir(), "s")
	_, failed, _ := acceptOne(t, t.Context(), "unix", path, config)
	if client, err := DialSession(t.Context(), "unix:"+path, nil); err == nil {
		_ = client.Close()
		t.Error("a refused client connects")
	}
	if err := <-failed; err == nil {
		t.Error("AcceptSession accepts a refused client")
	}
}

func TestAcceptSessionEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	for name, end := range map[string]struct {
		config *Config
		act    func(net.Conn)
		is     func(error) bool
	}{
		"by its context": {nil, func(net.Conn) { cancel() },
			func(err error) bool { return err == context.Canceled }},
		"by its timeout": {&Config{HandshakeTimeout: time.Millisecond}, func(net.Conn) {},
			func(err error) bool { return codeOf(err) != 0 }},
		"with other bytes": {nil, func(c net.Conn) { _, _ = c.Write([]byte("GET / HTTP/1.1\r\n")) },
			func(err error) bool { return codeOf(err) != 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			within := t.Context()
			if name == "by its context" {
				within = ctx
			}
			_ = os.Remove(path)
			_, failed, _ := acceptOne(t, within, "unix", path, end.config)
			conn, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			end.act(conn)
			if err := <-failed; !end.is(err) {
				t.Errorf("AcceptSession ends with %v", err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			for err = nil; err == nil; {
				_, err = conn.Read(make([]byte, 1000))
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection stays open")
			}
		})
	}
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build linux

package partywall

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// proxyTransports are the transports of the sessions with the Rust proxy, by the names that the
// proxy's option uses.
var proxyTransports = map[string]Config{
	"shm":    {Transport: TransportSharedMemory},
	"socket": {Transport: TransportSocket},
}

// startProxy starts the Rust proxy in a process of its own, and waits until it listens.
func startProxy(t *testing.T, transport, listen, to string) *exec.Cmd {
	t.Helper()
	command := exec.Command(rustProgram(t), "proxy", "--listen", listen, "--to", to,
		"--transport", transport)
	output, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	deadline := time.AfterFunc(testTime, func() { _ = command.Process.Kill() })
	defer deadline.Stop()
	lines := bufio.NewReader(output)
	line, err := lines.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "listening on ") {
		t.Fatalf("the proxy says %q, %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return command
}

// echoBody returns a handler of HTTP that answers with the body of the request. A request to the
// path /held is answered with its first bytes, and then waits until the request ends.
func echoBody(held chan<- struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/held" {
			if body, err := io.ReadAll(r.Body); err == nil {
				_, _ = w.Write(body)
			}
			return
		}
		_, _ = w.Write([]byte("first"))
		_ = http.NewResponseController(w).Flush()
		held <- struct{}{}
		<-r.Context().Done()
	})
}

// mustEchoBodies posts bodies of many sizes, one after the other and several at once, and fails the
// test unless the same bodies come back.
func mustEchoBodies(t *testing.T, client *http.Client) {
	t.Helper()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for _, size := range []int{0, 1, 1023, 1024, 65_535, 65_536, 65_537, 1 << 20, 4 << 20} {
				sent := bytes.Repeat([]byte{byte(i), byte(size), byte(size >> 8), 7}, size/4+1)[:size]
				response, err := client.Post("http://rust/", "text/plain", bytes.NewReader(sent))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if err != nil || !bytes.Equal(got, sent) {
					t.Errorf("%d bytes come back as %d others: %v", size, len(got), err)
				}
			}
		})
	}
	group.Wait()
}

// A Go client opens streams to the Rust proxy, which carries their bytes to a server over TCP.
func TestRustProxyServesGoClient(t *testing.T) {
	rustProgram(t)
	for transport, config := range proxyTransports {
		t.Run(transport, func(t *testing.T) {
			held := make(chan struct{}, 1)
			server := httptest.NewServer(echoBody(held))
			defer server.Close()
			address := "unix:" + filepath.Join(t.TempDir(), "s")
			to := "tcp:" + server.Listener.Addr().String()
			proxy := startProxy(t, transport, address, to)
			dialer := &Dialer{Config: config}
			defer dialer.Close()
			client := &http.Client{Timeout: testTime, Transport: &http.Transport{
				DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return dialer.DialContext(ctx, network, address)
				},
			}}
			mustEchoBodies(t, client)

			response, err := client.Get("http://rust/held")
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			<-held
			_ = proxy.Process.Kill()
			_ = proxy.Wait()
			if rest, err := io.ReadAll(response.Body); err == nil || string(rest) != "first" {
				t.Errorf("after the proxy is killed, %q comes and %v", rest, err)
			}
			client.CloseIdleConnections()
			startProxy(t, transport, address, to)
			mustEchoBodies(t, client)
		})
	}
}

// The Rust proxy opens streams to a Go listener, for clients that connect to the proxy over a Unix
// socket.
func TestGoListenerServesRustProxy(t *testing.T) {
	rustProgram(t)
	for transport, config := range proxyTransports {
		t.Run(transport, func(t *testing.T) {
			directory := t.TempDir()
			listener, err := Listen("unix:"+filepath.Join(directory, "s"), &config)
			if err != nil {
				t.Fatal(err)
			}
			held, ended := make(chan struct{}, 1), make(chan error, 1)
			server := &http.Server{Handler: echoBody(held)}
			go func() { ended <- server.Serve(listener) }()
			defer func() {
				_ = server.Close()
				if err := <-ended; err != http.ErrServerClosed {
					t.Errorf("the server ends with %v", err)
				}
			}()
			plain := filepath.Join(directory, "plain")
			proxy := startProxy(t, transport, "plain:unix:"+plain, listener.Addr().String())
			client := &http.Client{Timeout: testTime, Transport: &http.Transport{
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, "unix", plain)
				},
			}}
			mustEchoBodies(t, client)

			// A request is held open by its handler, and must end when the proxy does.
			response, err := client.Get("http://go/held")
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			<-held
			_ = proxy.Process.Kill()
			_ = proxy.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), testTime)
			defer cancel()
			if err := server.Shutdown(ctx); err != nil {
				t.Errorf("a request of a killed proxy does not end: %v", err)
			}
		})
	}
}

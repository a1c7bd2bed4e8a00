// SPDX-License-Identifier: MIT OR Apache-2.0

package examples_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	partywall "partywall.test/go"
)

// frameworksVariable is the environment variable with the path of the program to which
// crates/partywall/examples/framework_peer.rs is compiled. Without the variable the tests of this
// file are skipped.
const frameworksVariable = "PARTYWALL_RUST_FRAMEWORKS"

// testTime is the longest time that a test waits for one event.
const testTime = 60 * time.Second

var configs = map[string]partywall.Config{
	"shared memory": {Transport: partywall.TransportSharedMemory},
	"untrusted":     {Transport: partywall.TransportSharedMemory, Trust: partywall.TrustNobody},
	"socket":        {Transport: partywall.TransportSocket},
}

func rustCommand(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	program := os.Getenv(frameworksVariable)
	if program == "" {
		t.Skipf("%s does not name the example framework_peer of the Rust crate", frameworksVariable)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*testTime)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, program, arguments...)
}

// startAxum starts a server of axum in a process that ends with the test.
func startAxum(t *testing.T, address string) *exec.Cmd {
	t.Helper()
	server := rustCommand(t, "axum", address)
	server.Stderr = os.Stderr
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(server) })
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the server says %q, %v", line, err)
	}
	return server
}

func kill(process *exec.Cmd) {
	_ = process.Process.Kill()
	_ = process.Wait()
}

func bodyOf(size int) []byte {
	return bytes.Repeat([]byte{byte(size), byte(size >> 8), 7, 1}, size/4+1)[:size]
}

// A client of net/http calls a server of axum. When the server is killed, a request fails, and the
// same client reaches the next server.
func TestHTTPClientCallsAxum(t *testing.T) {
	for name, config := range configs {
		t.Run(name, func(t *testing.T) {
			address := "unix:" + filepath.Join(t.TempDir(), "s")
			server := startAxum(t, address)
			dialer := &partywall.Dialer{Config: config}
			defer dialer.Close()
			client := &http.Client{Timeout: testTime, Transport: &http.Transport{
				DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return dialer.DialContext(ctx, network, address)
				},
			}}
			mustEcho(t, client)
			who := mustRead(t)(client.Get("http://rust/who"))
			if want := fmt.Sprint("process ", os.Getpid()); string(who) != want {
				t.Errorf("the server is called by %q, want %q", who, want)
			}
			kill(server)
			if response, err := client.Get("http://rust/who"); err == nil {
				_ = response.Body.Close()
				t.Errorf("a killed server answers %s", response.Status)
			}
			client.CloseIdleConnections() // a POST over one of these would fail, too
			startAxum(t, address)
			mustEcho(t, client)
		})
	}
}

// mustEcho posts bodies of many sizes, several at the same time, and fails the test unless the same
// bodies come back.
func mustEcho(t *testing.T, client *http.Client) {
	t.Helper()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for _, size := range []int{0, 1, 1024, 65_535, 65_536, 1 << 20, 3 << 20} {
				sent := bodyOf(size)
				response, err := client.Post("http://rust/echo", "text/plain", bytes.NewReader(sent))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if err != nil || !bytes.Equal(got, sent) || response.StatusCode != http.StatusOK {
					t.Errorf("%d bytes come back as %d, %s, %v", size, len(got), response.Status, err)
				}
			}
		})
	}
	group.Wait()
}

// mustRead returns a function that takes the result of a request, and returns the body or fails the
// test.
func mustRead(t *testing.T) func(*http.Response, error) []byte {
	return func(response *http.Response, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
}

// A client of hyper calls a server of net/http, by HTTP/1.1 and by HTTP/2.
func TestHyperClientCallsHTTPServer(t *testing.T) {
	for name, config := range configs {
		t.Run(name, func(t *testing.T) {
			listener, err := partywall.Listen("unix:"+filepath.Join(t.TempDir(), "s"), &config)
			if err != nil {
				t.Fatal(err)
			}
			var mutex sync.Mutex
			versions := map[int]int{}
			server := &http.Server{Protocols: new(http.Protocols)}
			server.Protocols.SetHTTP1(true)
			server.Protocols.SetUnencryptedHTTP2(true)
			server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mutex.Lock()
				versions[r.ProtoMajor]++
				mutex.Unlock()
				if body, err := io.ReadAll(r.Body); err == nil {
					_, _ = w.Write(body)
				}
			})
			ended := make(chan error, 1)
			go func() { ended <- server.Serve(listener) }()
			output, err := rustCommand(t, "call-http", listener.Addr().String()).CombinedOutput()
			if err != nil {
				t.Errorf("the client ends with %v\n%s", err, output)
			}
			if err := server.Close(); err != nil {
				t.Error(err)
			}
			if err := <-ended; err != http.ErrServerClosed {
				t.Errorf("the server ends with %v", err)
			}
			if versions[1] != 7 || versions[2] != 7 {
				t.Errorf("requests by version of HTTP: %v, want 7 each", versions)
			}
		})
	}
}

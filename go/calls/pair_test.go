// SPDX-License-Identifier: MIT OR Apache-2.0

package calls

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	partywall "partywall.test/go"
	"partywall.test/go/internal/fault"
)

// testTime is the longest time that a test waits for a call, or for its end. A process in which a
// rule is disabled, so that a test has to fail, waits less.
var testTime = 20 * time.Second

func init() {
	if os.Getenv(fault.Variable) != "" {
		testTime = 3 * time.Second
	}
}

// A way is a transport with its configuration, over which the tests open sessions.
type way struct {
	name     string
	config   partywall.Config
	isShared bool
}

func ways() []way {
	return []way{
		{"shared", partywall.Config{Transport: partywall.TransportSharedMemory}, true},
		{"unix", partywall.Config{Transport: partywall.TransportSocket}, false},
		{"tcp", partywall.Config{}, false},
	}
}

// address returns an address on which nobody listens.
func (w way) address(t testing.TB) string {
	if w.name == "tcp" {
		return "tcp:127.0.0.1:0"
	}
	return "unix:" + filepath.Join(t.TempDir(), "s")
}

// eachWay runs a test once for each transport, with both ends of a stream, until the test fails.
func eachWay(t *testing.T, test func(t *testing.T, opened, accepted *partywall.Stream)) {
	for _, w := range ways() {
		passed := t.Run(w.name, func(t *testing.T) {
			if w.isShared && runtime.GOOS != "linux" {
				t.Skip("only Linux shares memory")
			}
			opened, accepted := streams(t, w)
			test(t, opened, accepted)
		})
		if !passed {
			return
		}
	}
}

// streams returns both ends of a new stream. Their sessions are closed when the test ends.
func streams(t testing.TB, w way) (opened, accepted *partywall.Stream) {
	t.Helper()
	listener, err := partywall.ListenSession(w.address(t), &w.config)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx := testContext(t)
	var group sync.WaitGroup
	var server *partywall.Session
	group.Go(func() { server, _ = listener.Accept(ctx) })
	client, err := partywall.DialSession(ctx, listener.Addr().String(), &w.config)
	group.Wait()
	if err != nil || server == nil {
		t.Fatal(server, err)
	}
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	if opened, err = client.OpenStream(ctx, []byte("calls")); err != nil {
		t.Fatal(err)
	}
	if accepted, err = server.AcceptStream(ctx); err != nil {
		t.Fatal(err)
	}
	return opened, accepted
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	t.Cleanup(cancel)
	return ctx
}

type serveResult chan error

func startServer(
	ctx context.Context, stream *partywall.Stream, handler Handler, config *Config,
) serveResult {
	result := make(serveResult, 1)
	go func() { result <- Serve(ctx, stream, handler, config) }()
	return result
}

func (r serveResult) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r:
		return err
	case <-time.After(testTime):
		t.Fatal("Serve does not return")
		return nil
	}
}

func receive[T any](t *testing.T, events <-chan T) (event T) {
	t.Helper()
	select {
	case event = <-events:
	case <-time.After(testTime):
		t.Fatal("an event does not happen")
	}
	return event
}

// A raw is one end of a stream on which a test sends and receives single frames of calls.
type raw struct{ *partywall.Stream }

func (r raw) send(t *testing.T, f frame, payload string) {
	t.Helper()
	header := f.encode()
	if err := r.Send(append(header[:], payload...)); err != nil {
		t.Fatal(err)
	}
}

func (r raw) mustReceive(t *testing.T, want frame, payload string) {
	t.Helper()
	f, bytes := r.receive(t)
	if f != want || bytes != payload {
		t.Fatalf("%+v with %q, want %+v with %q", f, bytes, want, payload)
	}
}

func (r raw) receive(t *testing.T) (frame, string) {
	t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(testTime)); err != nil {
		t.Fatal(err)
	}
	message, err := r.RecvMessage()
	if err != nil {
		t.Fatal(err)
	}
	defer message.Release()
	f, err := decode(message.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f, string(message.Bytes()[headerBytes:])
}

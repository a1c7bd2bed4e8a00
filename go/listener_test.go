// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"partywall.test/go/internal/wire"
)

// listenStreams returns a listener whose connections are streams, and which is closed when the test
// ends.
func listenStreams(t testing.TB, w way) *Listener {
	t.Helper()
	listener, err := Listen(testAddress(t, w), &w.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// serveEcho accepts streams, and sends back the bytes of each.
func serveEcho(listener net.Listener) {
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
}

// mustEcho sends n bytes, ends the sending, and fails the test unless the same bytes come back.
func mustEcho(t *testing.T, conn net.Conn, n int) {
	t.Helper()
	want := bytes.Repeat([]byte{byte(n), byte(n >> 8), 3}, n/3+1)
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := conn.Write(want); err != nil {
			t.Error(err)
		}
		if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Error(err)
		}
	})
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes came back, %v", len(got), len(want), err)
	}
	group.Wait()
}

func TestDialerKeepsOneSession(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		listener := listenStreams(t, w)
		go serveEcho(listener)
		dialer := Dialer{Config: w.config}
		defer dialer.Close()
		ctx := testContext(t)
		var group sync.WaitGroup
		var mutex sync.Mutex
		found := make(map[*Session]bool)
		for i := range 20 {
			group.Go(func() {
				conn, err := dialer.DialContext(ctx, "tcp", listener.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				mutex.Lock()
				found[conn.(*Stream).Session()] = true
				mutex.Unlock()
				mustEcho(t, conn, 1000*i)
			})
		}
		group.Wait()
		if len(found) != 1 {
			t.Errorf("%d sessions", len(found))
		}
	})
}

// A dialer replaces a session that is over, or in which the peer lets it open no more streams.
func TestDialerConnectsAgain(t *testing.T) {
	w := ways()[1]
	address := testAddress(t, w)
	var dialer Dialer
	defer dialer.Close()
	ctx := testContext(t)
	for range 3 {
		listener, err := Listen(address, nil)
		if err != nil {
			t.Fatal(err)
		}
		go serveEcho(listener)
		conn, err := dialer.DialContext(ctx, "", address)
		if err != nil {
			t.Fatal(err)
		}
		mustEcho(t, conn, 10)
		_ = listener.Close() // the sessions of the listener now refuse new streams
		_, _ = conn.(*Stream).Session().PeerGoAway(ctx)
		_ = conn.Close()
	}
	_, err := dialer.DialContext(ctx, "", address)
	mustBe(t, err, 332, os.ErrNotExist)
	_ = dialer.Close()
	if _, err := dialer.DialContext(ctx, "", address); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed dialer: %v", err)
	}
}

// When a listener is closed, the streams that it has accepted go on, and it refuses the streams
// that it has not accepted.
func TestListenerCloses(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		listener := listenStreams(t, w)
		session, err := DialSession(testContext(t), listener.Addr().String(), &w.config)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		ctx := testContext(t)
		opened, err := session.OpenStream(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		var refused [3]*Stream
		for i := range refused {
			if refused[i], err = session.OpenStream(ctx, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := session.Ping(ctx); err != nil { // the peer has read OPEN
			t.Fatal(err)
		}
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v", err)
		}
		for _, stream := range refused {
			_, err = stream.RecvMessage()
			if code, _ := asError(t, err).ApplicationCode(); code != 0xffffff01 {
				t.Errorf("a stream that was not accepted: %v", err)
			}
			_ = stream.Close()
		}
		go func() {
			defer accepted.Close()
			_, _ = io.Copy(accepted, accepted)
		}()
		mustEcho(t, opened, 100_000)
		_ = opened.Close()
		<-session.Done() // the accepting side closes the session once its last stream has ended
	})
}

// Accept goes on waiting while peers connect that send nothing, send bytes of another protocol,
// hang up, or break rules.
func TestListenerSurvivesBadPeers(t *testing.T) {
	for _, w := range []way{ways()[1], ways()[4]} {
		t.Run(w.name, func(t *testing.T) {
			var mutex sync.Mutex
			refused := 0
			w.config.HandshakesMax = 200
			w.config.OnRefused = func(error) {
				mutex.Lock()
				defer mutex.Unlock()
				refused++
			}
			listener := listenStreams(t, w)
			go serveEcho(listener)
			address := listener.Addr().String()
			network, name, _ := strings.Cut(address, ":")
			for i := range 100 {
				conn, err := net.Dial(network, name)
				if err != nil {
					t.Fatal(err)
				}
				switch i % 4 {
				case 0:
					_, _ = conn.Write([]byte("GET / HTTP/1.1\r\nHost: example\r\n\r\n"))
				case 1:
					_, _ = conn.Write(bytes.Repeat([]byte{0xff}, 200))
				case 2:
					_ = conn.Close()
				case 3:
					defer conn.Close() // says nothing
				}
			}
			conn, err := Dial(testContext(t), address, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			mustEcho(t, conn, 1000)
			ctx := testContext(t)
			for isAll := false; !isAll; {
				select {
				case <-ctx.Done():
					t.Fatalf("%d peers were refused", refused)
				case <-time.After(time.Millisecond):
				}
				mutex.Lock()
				isAll = refused >= 75
				mutex.Unlock()
			}
		})
	}
}

// A peer that breaks a rule of sessions ends its own session, and no other.
func TestListenerSurvivesViolation(t *testing.T) {
	w := ways()[3]
	listener := listenStreams(t, w)
	go serveEcho(listener)
	bad, err := DialSession(testContext(t), listener.Addr().String(), &w.config)
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	// The peer sends a message of a stream that was never opened, which is a violation.
	if err := bad.connection.Sender.TryMessage(77, []byte("x"), wire.Credit{}); err != nil {
		t.Fatal(err)
	}
	if err := bad.connection.Sender.Commit(); err != nil {
		t.Fatal(err)
	}
	<-bad.Done()
	mustBe(t, bad.Err(), 10, syscall.EPIPE)
	good, err := Dial(testContext(t), listener.Addr().String(), &w.config)
	if err != nil {
		t.Fatal(err)
	}
	defer good.Close()
	mustEcho(t, good, 1000)
}

func TestHTTPOverStreams(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		listener := listenStreams(t, w)
		server := http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				peer := r.Context().Value(peerKey{}).(Peer)
				w.Header().Set("Peer", fmt.Sprint(peer.HasCredentials, peer.PID))
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				_, _ = w.Write(body)
			}),
			ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
				return context.WithValue(ctx, peerKey{}, conn.(*Stream).Peer())
			},
		}
		go server.Serve(listener)
		defer server.Close()
		dialer := Dialer{Config: w.config}
		defer dialer.Close()
		address := listener.Addr().String()
		client := http.Client{Timeout: testTime, Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, network, address)
			},
		}}
		defer client.CloseIdleConnections()
		var group sync.WaitGroup
		for i := range 10 {
			group.Go(func() { post(t, &client, "http://server/", 50_000*i, w.network == "unix") })
		}
		group.Wait()

		// A reverse proxy passes requests that come over TCP to a server that listens for streams.
		target, _ := url.Parse("http://server/")
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.Transport = client.Transport
		front := httptest.NewServer(proxy)
		defer front.Close()
		post(t, front.Client(), front.URL, 300_000, w.network == "unix")
	})
}

type peerKey struct{}

// post posts n bytes, and fails the test unless the same bytes come back.
func post(t *testing.T, client *http.Client, address string, n int, isUnix bool) {
	t.Helper()
	want := bytes.Repeat([]byte{byte(n >> 4)}, n)
	response, err := client.Post(address, "application/octet-stream", bytes.NewReader(want))
	if err != nil {
		t.Error(err)
		return
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes came back, %v", len(got), n, err)
	}
	peer := "false 0"
	if isUnix {
		peer = fmt.Sprint(true, os.Getpid())
	}
	if found := response.Header.Get("Peer"); found != peer {
		t.Errorf("the server sees the peer %q, want %q", found, peer)
	}
}

// A peer writes to a stream until it is killed. The reader receives what the peer has written, and
// then the error of a disconnection, not that of a good end.
func TestKilledPeerIsNoEnd(t *testing.T) {
	if address := os.Getenv("PARTYWALL_KILLED"); address != "" {
		writeUntilKilled(address)
	}
	eachWay(t, func(t *testing.T, w way) {
		listener := listenStreams(t, w)
		command := exec.Command(os.Args[0], "-test.run=^TestKilledPeerIsNoEnd$")
		command.Env = append(os.Environ(), "PARTYWALL_KILLED="+listener.Addr().String())
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		defer command.Wait()
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(testTime)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, len("committed"))
		if _, err := io.ReadFull(conn, b); err != nil || string(b) != "committed" {
			t.Fatalf("%q, %v", b, err)
		}
		if err := command.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_, err = conn.Read(b)
		mustBe(t, err, 10, syscall.ECONNRESET)
	})
}

// writeUntilKilled is what the process does that the test kills: it writes to a stream without end.
func writeUntilKilled(address string) {
	conn, err := Dial(context.Background(), address, nil)
	if err != nil {
		os.Exit(1)
	}
	_, _ = conn.Write([]byte("committed"))
	_, _ = conn.Read(make([]byte, 1))
	os.Exit(1)
}

// ExampleListen serves HTTP over shared memory.
func ExampleListen() {
	directory, err := os.MkdirTemp("", "partywall")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(directory)
	address := "unix:" + filepath.Join(directory, "socket")
	listener, err := Listen(address, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "hello over shared memory")
	})}
	go server.Serve(listener)
	defer server.Close()

	var dialer Dialer
	defer dialer.Close()
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		},
	}}
	response, err := client.Get("http://server/")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	fmt.Printf("%s %v\n", body, err)
	// Output: hello over shared memory <nil>
}

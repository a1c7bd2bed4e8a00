// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallshmipc

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cloudwego/shmipc-go"

	partywall "partywall.test/go"
)

// echoCallback is a callback of a listener that sends back the bytes of each stream, and reports
// the events of streams.
type echoCallback struct{ events chan string }

func (c echoCallback) OnNewStream(s *Stream) {
	if err := s.SetCallbacks(&echoStream{s, c.events}); err != nil {
		c.events <- err.Error()
	}
	if err := s.SetCallbacks(&echoStream{s, c.events}); err != ErrStreamCallbackHadExisted {
		c.events <- "callbacks are set twice"
	}
}

func (c echoCallback) OnShutdown(string) { c.events <- "shutdown" }

type echoStream struct {
	stream *Stream
	events chan string
}

func (e *echoStream) OnData(reader BufferReader) {
	b, err := reader.ReadBytes(reader.Len())
	if err == nil {
		_, err = e.stream.BufferWriter().WriteBytes(b)
	}
	reader.ReleasePreviousRead()
	if err == nil {
		err = e.stream.Flush(false)
	}
	if err != nil {
		e.events <- err.Error()
	}
}

func (e *echoStream) OnLocalClose() { e.events <- "local close" }

func (e *echoStream) OnRemoteClose() { e.events <- "remote close" }

// startEcho starts a listener that sends back the bytes of each stream.
func startEcho(t *testing.T, own partywall.Config) (path string, events chan string) {
	return startEchoWithin(t, testTime, own)
}

// startEchoWithin starts a listener like startEcho, which refuses a client that has not begun a
// session within the given time.
func startEchoWithin(t *testing.T, within time.Duration, own partywall.Config) (
	path string, events chan string,
) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	events = make(chan string, 1000)
	config := NewDefaultListenerConfig(path, "unix")
	config.InitializeTimeout, config.Partywall = within, own
	listener, err := NewListener(echoCallback{events}, config)
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- listener.Run() }()
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ran; err != nil {
			t.Errorf("Run returns %v", err)
		}
	})
	return path, events
}

func mustEvent(t *testing.T, events chan string, want string) {
	t.Helper()
	select {
	case got := <-events:
		if got != want {
			t.Errorf("the event is %q, want %q", got, want)
		}
	case <-time.After(testTime):
		t.Errorf("the event %q does not come", want)
	}
}

// testStream has the methods of a stream that this package and shmipc-go have in common.
type testStream interface {
	BufferReader() BufferReader
	BufferWriter() BufferWriter
	Flush(bool) error
	Close() error
}

// mustEcho sends bytes on a stream, and fails the test unless the same bytes come back.
func mustEcho(t *testing.T, stream testStream, sent []byte) {
	t.Helper()
	if _, err := stream.BufferWriter().WriteBytes(sent); err != nil {
		t.Error(err)
		return
	}
	if err := stream.Flush(false); err != nil {
		t.Error(err)
		return
	}
	got, err := stream.BufferReader().ReadBytes(len(sent))
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes come back as %d others: %v", len(sent), len(got), err)
	}
	stream.BufferReader().ReleasePreviousRead()
}

// theirManager returns a session manager of shmipc-go, which connects to the listener as an
// unmodified client does.
func theirManager(t *testing.T, path string) *shmipc.SessionManager {
	t.Helper()
	config := shmipc.DefaultSessionManagerConfig()
	config.Network, config.Address = "unix", path
	config.MemMapType = shmipc.MemMapTypeMemFd
	config.InitializeTimeout, config.LogOutput = testTime, os.Stderr
	manager, err := shmipc.NewSessionManager(config)
	if err != nil {
		t.Fatal(err)
	}
	return manager
}

func ourManager(t *testing.T, path string, own partywall.Config) *SessionManager {
	t.Helper()
	config := DefaultSessionManagerConfig()
	config.UnixPath, config.SessionNum, config.Partywall = path, 2, own
	manager, err := NewSessionManager(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.Close() })
	return manager
}

var sizes = []int{1, 64, 4095, 4096, 4097, 65_536, 1 << 20, 5 << 20}

func TestBothClientsAtOneListener(t *testing.T) {
	path, _ := startEcho(t, partywall.Config{})
	theirs, ours := theirManager(t, path), ourManager(t, path, partywall.Config{})
	defer theirs.Close()
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for _, size := range sizes {
				stream, err := theirs.GetStream()
				if err != nil {
					t.Error(err)
					return
				}
				mustEcho(t, stream, counted(i, size))
				theirs.PutBack(stream)
			}
		})
		group.Go(func() {
			for _, size := range sizes {
				stream, err := ours.GetStream()
				if err != nil {
					t.Error(err)
					return
				}
				mustEcho(t, stream, counted(i, size))
				ours.PutBack(stream)
			}
		})
	}
	group.Wait()
}

func TestStreamIsUsedAgain(t *testing.T) {
	path, events := startEcho(t, partywall.Config{})
	manager := ourManager(t, path, partywall.Config{})
	first, err := manager.GetStream()
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, first, counted(1, 100))
	manager.PutBack(first)
	second, err := manager.GetStream()
	if err != nil || second != first {
		t.Fatalf("the next stream is another one: %v", err)
	}
	mustEcho(t, second, counted(2, 100))
	// The second stream has unread bytes, so the pool must not keep it for its next use.
	if _, err := second.Write(counted(3, 10)); err != nil {
		t.Fatal(err)
	}
	if _, err := second.BufferReader().Peek(10); err != nil {
		t.Fatal(err)
	}
	manager.PutBack(second)
	mustEvent(t, events, "remote close")
	third, err := manager.GetStream()
	if err != nil || third == first {
		t.Fatalf("a stream with unread bytes is used again: %v", err)
	}
	mustEcho(t, third, counted(4, 100))
	if err := third.Close(); err != nil {
		t.Error(err)
	}
	if err := third.Close(); err != nil {
		t.Errorf("closing again returns %v", err)
	}
	if third.IsOpen() {
		t.Error("a closed stream is open")
	}
	if _, err := third.BufferReader().ReadBytes(1); err != ErrStreamClosed {
		t.Errorf("a read of a closed stream returns %v", err)
	}
	mustEvent(t, events, "remote close")
}

func TestClosingIsReportedForBothClients(t *testing.T) {
	path, events := startEcho(t, partywall.Config{})
	theirs := theirManager(t, path)
	defer theirs.Close()
	stream, err := theirs.GetStream()
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, stream, counted(1, 100))
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
	mustEvent(t, events, "remote close")
	ours := ourManager(t, path, partywall.Config{})
	own, err := ours.GetStream()
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, own, counted(1, 100))
	if err := ours.Close(); err != nil {
		t.Error(err)
	}
	mustEvent(t, events, "remote close")
	if _, err := ours.GetStream(); err != ErrSessionShutdown {
		t.Errorf("a stream of a closed manager: %v", err)
	}
}

func TestAdmitIsAskedForBothClients(t *testing.T) {
	refused := errors.New("refused by the test")
	asked := make(chan partywall.Peer, 10)
	failed := make(chan error, 10)
	path, _ := startEcho(t, partywall.Config{
		Admit: func(peer partywall.Peer) error {
			asked <- peer
			return refused
		},
		OnRefused: func(err error) { failed <- err },
	})
	mustRefuse := func(err error) {
		t.Helper()
		if err == nil {
			t.Error("a refused client connects")
		}
		peer := <-asked
		if !peer.HasCredentials || peer.PID != os.Getpid() || peer.UID != uint32(os.Geteuid()) {
			t.Errorf("Admit is asked for %v", peer)
		}
		if err := <-failed; err == nil {
			t.Error("OnRefused is called without an error")
		}
	}
	config := shmipc.DefaultSessionManagerConfig()
	config.Network, config.Address, config.MemMapType = "unix", path, shmipc.MemMapTypeMemFd
	_, err := shmipc.NewSessionManager(config)
	mustRefuse(err)
	own := DefaultSessionManagerConfig()
	own.UnixPath = path
	_, err = NewSessionManager(own)
	mustRefuse(err)
}

// A connection that begins with another protocol is closed, and so is one on which nothing is sent.
// Other connections are served meanwhile.
func TestForeignConnectionsEnd(t *testing.T) {
	path, _ := startEchoWithin(t, 500*time.Millisecond, partywall.Config{})
	for _, sent := range []string{"GET / HTTP/1.1\r\n\r\n", "PARTY", "PARTYWALxxxxxxxxxxxxxxxxxxxxxx",
		"\x00\x00\x00\x08\x77\x58\x07\x04", ""} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(sent)); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(testTime)); err != nil {
			t.Fatal(err)
		}
		for err = nil; err == nil; {
			_, err = conn.Read(make([]byte, 1000))
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection that begins with %q stays", sent)
		}
		_ = conn.Close()
	}
	config := DefaultSessionManagerConfig()
	config.UnixPath = path
	manager, err := NewSessionManager(config)
	// The listener also refuses a client that is late, which then connects again.
	for end := time.Now().Add(testTime); err != nil && time.Now().Before(end); {
		manager, err = NewSessionManager(config)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	stream, err := manager.GetStream()
	if err != nil {
		t.Fatal(err)
	}
	mustEcho(t, stream, counted(1, 1000))
}

func TestSocketFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	events := make(chan string, 10)
	living, err := NewListener(echoCallback{events}, NewDefaultListenerConfig(path, "unix"))
	if err != nil {
		t.Fatalf("the file of a dead listener is not replaced: %v", err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode of the socket is %v: %v", info.Mode(), err)
	}
	if _, err := NewListener(echoCallback{events}, living.configCopy()); err == nil {
		t.Error("the file of a living listener is replaced")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := living.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("Close removes the file of another: %v", err)
	}
	if _, err := NewListener(echoCallback{events}, NewDefaultListenerConfig(path, "unix")); err == nil {
		t.Error("a file that is no socket is replaced")
	}
	if _, err := NewListener(nil, NewDefaultListenerConfig(path, "unix")); err == nil {
		t.Error("a listener has no callback")
	}
	remote := NewDefaultListenerConfig("0.0.0.0:0", "tcp")
	if _, err := NewListener(echoCallback{events}, remote); err == nil {
		t.Error("without AllowRemote a listener is reached from other hosts")
	}
}

func (l *Listener) configCopy() *ListenerConfig {
	config := l.config
	return &config
}

// counted returns bytes that differ for each start.
func counted(start, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(start + i*7 + i>>8)
	}
	return b
}

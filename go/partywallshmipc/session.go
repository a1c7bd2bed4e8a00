// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallshmipc

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cloudwego/shmipc-go"
	"golang.org/x/sys/unix"

	partywall "partywall.test/go"
)

// A Session carries streams over one connection.
type Session struct {
	carried  sessionCarrier
	local    net.Addr
	remote   net.Addr
	isClient bool

	mu      sync.Mutex
	streams map[*Stream]struct{} // those with callbacks
}

// sessionCarrier is the session that does the work of a [Session]: one of partywall, or one of
// shmipc-go.
type sessionCarrier interface {
	open() (carrier, error)
	accept() (carrier, error)
	Close() error
	IsHealthy() bool
	CloseChan() <-chan struct{}
	GetActiveStreamCount() int
}

// Server makes a session on an accepted connection, with a client of partywall or of shmipc-go. A
// Unix listener should set partywall.PassCredentials as Control of its net.ListenConfig. Without
// it, partywall does not learn who its client is, and trusts the client less, which makes messages
// slower.
func Server(conn net.Conn, config *Config) (*Session, error) {
	return serve(context.Background(), conn, config, nil)
}

// serve makes a session on an accepted connection. The first configuration is for a client of
// shmipc-go, the second for a client of partywall.
func serve(
	ctx context.Context, conn net.Conn, config *Config, own *partywall.Config,
) (*Session, error) {
	if config == nil {
		config = DefaultConfig()
	}
	local, remote := conn.LocalAddr(), conn.RemoteAddr()
	begin, err := peek(conn, config.InitializeTimeout)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if string(begin) == partywall.Preface {
		session, err := partywall.AcceptSession(ctx, conn, withWindow(own))
		if err != nil {
			return nil, err
		}
		return &Session{carried: newNativeSession(session), local: local, remote: remote}, nil
	}
	if string(begin[4:6]) != shmipcMagic {
		_ = conn.Close()
		return nil, fmt.Errorf("partywallshmipc: a connection begins with %q", begin)
	}
	if err := admitShmipc(conn, own); err != nil {
		_ = conn.Close()
		return nil, err
	}
	session, err := serveShmipc(conn, config)
	if err != nil {
		return nil, err
	}
	return &Session{carried: shmipcSession{session}, local: local, remote: remote}, nil
}

// serveShmipc makes a session of shmipc-go, which takes conn over. If shmipc-go fails, it leaves
// the client connected, so serveShmipc ends the connection.
func serveShmipc(conn net.Conn, config *Config) (*shmipc.Session, error) {
	socket, ok := conn.(interface{ File() (*os.File, error) })
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("partywallshmipc: %T is no socket", conn)
	}
	file, err := socket.File()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	defer file.Close()
	session, err := shmipc.Server(conn, config)
	if err != nil {
		_ = conn.Close()
		_ = unix.Shutdown(int(file.Fd()), unix.SHUT_RDWR)
	}
	return session, err
}

// dial makes a session with a listener of this package, as a client.
func dial(config *SessionManagerConfig) (*Session, error) {
	address := "unix:" + config.UnixPath
	if config.UnixPath == "" {
		address = config.Network + ":" + config.Address
	}
	timeout := 10 * time.Second
	if config.Config != nil && config.ConnectionWriteTimeout > 0 {
		timeout = config.ConnectionWriteTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	session, err := partywall.DialSession(ctx, address, withWindow(&config.Partywall))
	if err != nil {
		return nil, err
	}
	listener, err := partywall.ParseAddr(address)
	if err != nil {
		return nil, err
	}
	return &Session{
		carried: newNativeSession(session), local: listener, remote: listener, isClient: true,
	}, nil
}

// withWindow returns a copy of the configuration whose StreamWindow is 8 MiB if it was zero. The
// window is that large because programs of shmipc-go do not expect that Flush waits for the peer's
// application.
func withWindow(config *partywall.Config) *partywall.Config {
	var windowed partywall.Config
	if config != nil {
		windowed = *config
	}
	if windowed.StreamWindow == 0 {
		windowed.StreamWindow = streamWindow
	}
	return &windowed
}

// OpenStream opens a stream. A stream of a session with a client of shmipc-go is opened by that
// client, and not by this side.
func (s *Session) OpenStream() (*Stream, error) { return s.wrap(s.carried.open()) }

// AcceptStream waits for a stream that the client opens.
func (s *Session) AcceptStream() (*Stream, error) { return s.wrap(s.carried.accept()) }

func (s *Session) wrap(stream carrier, err error) (*Stream, error) {
	if err != nil {
		return nil, err
	}
	return &Stream{carrier: stream, session: s}, nil
}

// Close closes the session and its streams. Streams with callbacks are closed first, because
// shmipc-go frees the buffers of streams even while a goroutine of a callback may still read them.
func (s *Session) Close() error {
	if s.isOver() {
		return s.carried.Close() // the streams have ended by themselves
	}
	s.mu.Lock()
	streams := slices.Collect(maps.Keys(s.streams))
	s.mu.Unlock()
	for _, stream := range streams {
		_ = stream.Close()
	}
	return s.carried.Close()
}

// track adds a stream with callbacks to those that Close closes first. The method forget removes
// the stream again.
func (s *Session) track(stream *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams == nil {
		s.streams = make(map[*Stream]struct{})
	}
	s.streams[stream] = struct{}{}
}

func (s *Session) forget(stream *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, stream)
}

// IsClosed reports whether the session has ended.
func (s *Session) IsClosed() bool {
	select {
	case <-s.CloseChan():
		return true
	default:
		return false
	}
}

// isOver reports whether the session is over. A session of partywall is over before its connection
// is closed, and its streams then find that the peer has ended it.
func (s *Session) isOver() bool {
	native, isNative := s.carried.(nativeSession)
	return s.IsClosed() || isNative && native.Err() != nil
}

// CloseChan returns a channel that is closed once the session has ended.
func (s *Session) CloseChan() <-chan struct{} { return s.carried.CloseChan() }

// IsHealthy reports whether streams can still be opened in the session.
func (s *Session) IsHealthy() bool { return s.carried.IsHealthy() }

// GetActiveStreamCount returns the number of streams of the session that have not ended.
func (s *Session) GetActiveStreamCount() int { return s.carried.GetActiveStreamCount() }

// IsClient reports whether this side has connected, and the other has accepted.
func (s *Session) IsClient() bool { return s.isClient }

// LocalAddr returns the address of this side of the connection.
func (s *Session) LocalAddr() net.Addr { return s.local }

// RemoteAddr returns the address of the other side of the connection.
func (s *Session) RemoteAddr() net.Addr { return s.remote }

// Peer returns the process at the other end of the session. The second result is false for a client
// of shmipc-go, whose protocol does not tell.
func (s *Session) Peer() (partywall.Peer, bool) {
	native, ok := s.carried.(nativeSession)
	if !ok {
		return partywall.Peer{}, false
	}
	return native.Session.Peer(), true
}

// nativeSession lets a session of package partywall do the work of a [Session] of this package.
type nativeSession struct {
	*partywall.Session
	streams *openStreams
}

func newNativeSession(session *partywall.Session) nativeSession {
	return nativeSession{session, newOpenStreams()}
}

func (s nativeSession) open() (carrier, error) {
	return s.stream(s.OpenStream(context.Background(), nil))
}

func (s nativeSession) accept() (carrier, error) {
	return s.stream(s.AcceptStream(context.Background()))
}

func (s nativeSession) stream(stream *partywall.Stream, err error) (carrier, error) {
	if err != nil {
		return nil, ErrSessionShutdown
	}
	native := newNativeStream(stream)
	native.open = s.streams
	s.streams.add(native)
	return native, nil
}

// Close closes the session. As with shmipc-go, closing it again is no error.
func (s nativeSession) Close() error {
	_ = s.Session.Close()
	return nil
}

func (s nativeSession) IsHealthy() bool            { return s.Err() == nil }
func (s nativeSession) CloseChan() <-chan struct{} { return s.Done() }
func (s nativeSession) GetActiveStreamCount() int  { return s.StreamCount() }

// shmipcSession lets a session of shmipc-go do the work of a [Session] of this package.
type shmipcSession struct{ *shmipc.Session }

func (s shmipcSession) open() (carrier, error) {
	stream, err := s.OpenStream()
	return stream, err
}

func (s shmipcSession) accept() (carrier, error) {
	stream, err := s.AcceptStream()
	return stream, err
}

// shmipcMagic is a mark in each header of the protocol of shmipc-go, which follows the header's
// length.
const shmipcMagic = "\x77\x58"

// streamWindow bounds the unread bytes of a stream, unless the configuration sets another window.
const streamWindow = 8 << 20

// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"context"
	"net"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mux"
	"partywall.test/go/internal/wire"
)

// A Session carries any number of streams over one connection. Both sides open streams. An unread
// stream does not hold up the others.
//
// Any number of goroutines may use a session. The application closes a session that it no longer
// needs.
type Session struct {
	session    *mux.Session
	connection *wire.Connection
	address    Addr // of the listener
}

// DialSession connects to a listener of sessions. Connecting is given up when ctx ends or
// HandshakeTimeout of config has passed. If config is nil, it is the default configuration.
func DialSession(ctx context.Context, address string, config *Config) (*Session, error) {
	a, err := wire.ParseAddress(address)
	if err != nil {
		return nil, wrap("dial", err)
	}
	settings, err := config.sessionSettings(layout.RoleConnector, a)
	if err != nil {
		return nil, wrap("dial", err)
	}
	connection, err := wire.Dial(ctx, a, &settings, config.handshakeTimeout())
	if err != nil {
		return nil, wrap("dial", err)
	}
	return newSession(connection, &settings, config, a), nil
}

// newSession starts a session on the connection c, whose handshake is done.
func newSession(c *wire.Connection, s *wire.Settings, config *Config, a wire.Address) *Session {
	conn, state := mux.NewState(c, mux.Config{
		Role: s.Role,
		Limits: layout.Limits{
			MapMax: s.MapMax, MessageMax: s.MessageMax, SegmentsMax: s.SegmentsMax,
		},
		Window:     s.StreamWindow,
		StreamsMax: s.StreamsMax,
	})
	return &Session{mux.Start(conn, state, config.linger()), c, Addr{a}}
}

// Peer returns the process at the other end of the session.
func (s *Session) Peer() Peer { return Peer(s.connection.Peer) }

// Transport returns the transport, shared memory or a socket, that carries the streams of the
// session.
func (s *Session) Transport() Transport {
	outcome := s.connection.Outcome
	return Transport{IsShared: outcome.IsShared, Reason: FallbackReason(outcome.Reason)}
}

// OpenStream opens a stream, without a round trip. The metadata is for the peer's application, at
// most 1,000 bytes. While this side has as many streams open as the peer allows, OpenStream waits,
// until ctx ends.
func (s *Session) OpenStream(ctx context.Context, metadata []byte) (*Stream, error) {
	return s.open(ctx, layout.OpenContentApplication, metadata)
}

func (s *Session) open(ctx context.Context, content uint16, metadata []byte) (*Stream, error) {
	stream, err := s.session.Open(ctx, content, metadata)
	if err != nil {
		return nil, wrap("open", err)
	}
	return &Stream{stream: stream, session: s}, nil
}

// AcceptStream waits for the next stream that the peer opens. It fails when ctx ends, or once the
// session is over.
func (s *Session) AcceptStream(ctx context.Context) (*Stream, error) {
	stream, err := s.session.Accept(ctx)
	if err != nil {
		return nil, wrap("accept", err)
	}
	return &Stream{stream: stream, session: s}, nil
}

// Ping waits until the peer has answered a PING of this side. The peer's library sends the answer,
// even while the peer's application is busy.
func (s *Session) Ping(ctx context.Context) error { return wrap("ping", s.session.Ping(ctx)) }

// GoAway asks the peer to open no more streams, and refuses streams that the peer opens from now
// on. Open streams go on. The code is for the peer's application, and must be less than 0xffffff00.
func (s *Session) GoAway(code uint32) { s.session.GoAway(applicationCode(code)) }

// PeerGoAway waits until the peer asks this side to open no more streams, and returns the peer's
// code.
func (s *Session) PeerGoAway(ctx context.Context) (uint32, error) {
	err := wrap("wait", s.session.PeerGoAway(ctx))
	if e, isError := err.(*Error); isError && e.ErrorCode() == ErrorCode(layout.ErrorGoingAway) {
		code, _ := e.ApplicationCode()
		return code, nil
	}
	return 0, err
}

// IsGoingAway reports whether the peer has asked this side to open no more streams.
func (s *Session) IsGoingAway() bool { return s.session.IsGoingAway() }

// Drained waits until all streams of the session have ended.
func (s *Session) Drained(ctx context.Context) error { return wrap("wait", s.session.Drained(ctx)) }

// StreamCount returns the number of streams of the session that have not ended.
func (s *Session) StreamCount() int { return s.session.StreamCount() }

// Done returns a channel that is closed once the session is over.
func (s *Session) Done() <-chan struct{} { return s.session.Done() }

// Err returns the reason why the session is over, or nil while it is not.
func (s *Session) Err() error { return wrap("session", s.session.Err()) }

// Close closes the session in good order: the peer receives what was sent, then the end. Streams
// that are not over end on both sides. Close waits until the peer has room for the end, for at most
// [Config.Linger].
func (s *Session) Close() error { return s.CloseWithCode(0, "") }

// CloseWithCode closes the session in good order, as [Session.Close] does, and sends the peer a
// code for its application and a reason for its operators. The reason has at most 255 bytes.
func (s *Session) CloseWithCode(code uint32, reason string) error {
	if s.session.Err() != nil {
		s.session.Close(code, reason)
		return wrap("close", wire.ErrClosed)
	}
	s.session.Close(applicationCode(code), reason)
	return nil
}

// applicationCode returns the code, which an application has chosen. It panics if the code is
// reserved for the protocol: 0xffffff00 or more.
func applicationCode(code uint32) uint32 {
	if code >= layout.ResetCodesReserved {
		panic("partywall: codes from 0xffffff00 on are those of the protocol")
	}
	return code
}

// A SessionListener accepts sessions. Any number of goroutines may use it.
type SessionListener struct {
	listener *wire.Listener
	settings wire.Settings
	config   *Config
}

// ListenSession listens for sessions on an address. If config is nil, it is the default
// configuration. A socket file on which no process listens any more is replaced.
func ListenSession(address string, config *Config) (*SessionListener, error) {
	a, err := wire.ParseAddress(address)
	if err != nil {
		return nil, wrap("listen", err)
	}
	settings, err := config.sessionSettings(layout.RoleAcceptor, a)
	if err != nil {
		return nil, wrap("listen", err)
	}
	listener, err := wire.Listen(a, settings, config.listenOptions())
	if err != nil {
		return nil, wrap("listen", err)
	}
	return &SessionListener{listener: listener, settings: settings, config: config}, nil
}

// Accept waits for the next session. If a peer is refused or breaks a rule, Accept goes on waiting.
// Only ctx and [SessionListener.Close] make it fail.
func (l *SessionListener) Accept(ctx context.Context) (*Session, error) {
	connection, err := l.listener.Accept(ctx)
	if err != nil {
		return nil, wrap("accept", err)
	}
	return newSession(connection, &l.settings, l.config, l.listener.Address()), nil
}

// Addr returns the address of the listener. If the system has chosen its port, the address has this
// port.
func (l *SessionListener) Addr() net.Addr { return Addr{l.listener.Address()} }

// Close closes the listener, and removes its socket file unless another listener has replaced the
// file. Accepted sessions stay open.
func (l *SessionListener) Close() error { return wrap("close", l.listener.Close()) }

// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"context"
	"net"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mux"
	"partywall.test/go/internal/wire"
)

// A Session carries any number of streams over one connection. Both sides open them. An unread
// stream holds up no other.
//
// Any number of goroutines may use a session. A session is closed when it is of no more use.
type Session struct {
	session    *mux.Session
	connection *wire.Connection
	address    Addr // of the listener
}

// DialSession connects to a listener of sessions. It ends when ctx does, or by the timeout of the
// configuration; nil is the default configuration.
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

// newSession starts the session of a connection.
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

// Peer returns the process at the other end.
func (s *Session) Peer() Peer { return Peer(s.connection.Peer) }

// Transport returns what carries the streams.
func (s *Session) Transport() Transport {
	outcome := s.connection.Outcome
	return Transport{IsShared: outcome.IsShared, Reason: FallbackReason(outcome.Reason)}
}

// OpenStream opens a stream, without a round trip. The metadata is for the peer's application, at
// most 1,000 bytes. While as many streams are open as the peer allows it waits, until ctx ends.
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

// AcceptStream waits for a stream that the peer opens. It fails when ctx ends, or once the session
// is over.
func (s *Session) AcceptStream(ctx context.Context) (*Stream, error) {
	stream, err := s.session.Accept(ctx)
	if err != nil {
		return nil, wrap("accept", err)
	}
	return &Stream{stream: stream, session: s}, nil
}

// Ping waits until the peer has answered a question. The peer's library answers, also while its
// application is busy.
func (s *Session) Ping(ctx context.Context) error { return wrap("ping", s.session.Ping(ctx)) }

// GoAway asks the peer to open no more streams, and refuses those that it opens from now on. Open
// streams go on. The code is for the peer's application, and less than 0xffffff00.
func (s *Session) GoAway(code uint32) { s.session.GoAway(applicationCode(code)) }

// PeerGoAway waits until the peer asks for no more streams, and returns its code.
func (s *Session) PeerGoAway(ctx context.Context) (uint32, error) {
	err := wrap("wait", s.session.PeerGoAway(ctx))
	if e, isError := err.(*Error); isError && e.ErrorCode() == ErrorCode(layout.ErrorGoingAway) {
		code, _ := e.ApplicationCode()
		return code, nil
	}
	return 0, err
}

// IsGoingAway reports whether the peer has asked for no more streams.
func (s *Session) IsGoingAway() bool { return s.session.IsGoingAway() }

// Drained waits until all streams have ended.
func (s *Session) Drained(ctx context.Context) error { return wrap("wait", s.session.Drained(ctx)) }

// StreamCount returns the number of streams that have not ended.
func (s *Session) StreamCount() int { return s.session.StreamCount() }

// Done returns a channel that is closed once the session is over.
func (s *Session) Done() <-chan struct{} { return s.session.Done() }

// Err returns why the session is over, or nil.
func (s *Session) Err() error { return wrap("session", s.session.Err()) }

// Close closes the session in good order: the peer receives what was sent, then the end. Streams
// that are not over end on both sides. Close waits until the peer has room for the end, for at most
// [Config.Linger].
func (s *Session) Close() error { return s.CloseWithCode(0, "") }

// CloseWithCode is Close with a code for the peer's application and a reason for its operators, at
// most 255 bytes.
func (s *Session) CloseWithCode(code uint32, reason string) error {
	if s.session.Err() != nil {
		s.session.Close(code, reason)
		return wrap("close", wire.ErrClosed)
	}
	s.session.Close(applicationCode(code), reason)
	return nil
}

// applicationCode returns the code. It panics if the code is the protocol's.
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

// ListenSession listens on an address; nil is the default configuration. A path on which nobody
// listens any more is taken over.
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

// Accept waits for the next session. A peer that is refused, or breaks a rule, does not end it:
// only ctx and [SessionListener.Close] do.
func (l *SessionListener) Accept(ctx context.Context) (*Session, error) {
	connection, err := l.listener.Accept(ctx)
	if err != nil {
		return nil, wrap("accept", err)
	}
	return newSession(connection, &l.settings, l.config, l.listener.Address()), nil
}

// Addr returns the address, with the port that the system has chosen.
func (l *SessionListener) Addr() net.Addr { return Addr{l.listener.Address()} }

// Close ends listening, and removes the socket file if it is still the listener's. Sessions that
// were accepted stay open.
func (l *SessionListener) Close() error { return wrap("close", l.listener.Close()) }

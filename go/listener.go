// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/wire"
)

// A Listener is a [net.Listener] whose connections are the streams of all sessions that peers make
// with it. It serves HTTP, gRPC and whatever else takes a net.Listener.
type Listener struct {
	sessions *SessionListener
	streams  chan *Stream
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	served   sync.WaitGroup
}

var _ net.Listener = (*Listener)(nil)

// Listen listens on an address; nil is the default configuration. See [ListenSession].
func Listen(address string, config *Config) (*Listener, error) {
	sessions, err := ListenSession(address, config)
	if err != nil {
		return nil, err
	}
	l := &Listener{sessions: sessions, streams: make(chan *Stream)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.served.Go(l.serve)
	return l, nil
}

// Accept waits for the next stream, which is a [*Stream]. A peer that is refused, breaks a rule or
// dies does not end it: after [Listener.Close] alone the error wraps [net.ErrClosed].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case stream := <-l.streams:
		return stream, nil
	case <-l.ctx.Done():
		return nil, &net.OpError{
			Op: "accept", Net: networkName, Addr: l.Addr(), Err: wrap("accept", wire.ErrClosed),
		}
	}
}

// Addr returns the address, with the port that the system has chosen.
func (l *Listener) Addr() net.Addr { return l.sessions.Addr() }

// Close ends listening. Streams that were accepted go on; their sessions ask their peers to open no
// more, and are closed once the last stream has ended.
func (l *Listener) Close() error {
	if l.ctx.Err() != nil {
		return &net.OpError{
			Op: "close", Net: networkName, Addr: l.Addr(), Err: wrap("close", wire.ErrClosed),
		}
	}
	l.cancel()
	err := l.sessions.Close()
	l.served.Wait()
	return err
}

// serve accepts sessions until the listener is closed.
func (l *Listener) serve() {
	for {
		session, err := l.sessions.Accept(l.ctx)
		if err != nil {
			return
		}
		l.served.Go(func() { l.serveSession(session) })
	}
}

// serveSession hands the streams of a session to Accept, until the session is over or the listener
// is closed.
func (l *Listener) serveSession(session *Session) {
	for {
		stream, err := session.AcceptStream(l.ctx)
		if err != nil {
			break
		}
		select {
		case l.streams <- stream:
		case <-l.ctx.Done():
			stream.stream.Refuse()
		}
	}
	session.GoAway(0)
	// Streams that came before are refused as well. The context has ended: nothing is waited for.
	for {
		stream, err := session.AcceptStream(l.ctx)
		if err != nil {
			break
		}
		stream.stream.Refuse()
	}
	go closeDrained(session)
}

// closeDrained closes a session once its streams have ended.
func closeDrained(session *Session) {
	// An error means that the session is over already.
	_ = session.Drained(context.Background())
	_ = session.Close()
}

// Dial connects to a [Listener], or another listener of sessions, and opens the one stream of the
// new session. Closing the stream closes the session.
func Dial(ctx context.Context, address string, config *Config) (*Stream, error) {
	session, err := DialSession(ctx, address, config)
	if err != nil {
		return nil, err
	}
	stream, err := session.open(ctx, layout.OpenContentBytes, nil)
	if err != nil {
		_ = session.Close()
		return nil, err
	}
	stream.isOnly = true
	return stream, nil
}

// A Dialer opens streams to listeners, as a net.Dialer opens connections: it keeps one session for
// each address, and opens a stream in it each time. The zero value is ready for use. Any number of
// goroutines may use it.
type Dialer struct {
	// Config has the settings of all sessions.
	Config Config

	mu       sync.Mutex
	sessions map[string]*dialed
	retired  map[*Session]struct{} // those whose streams go on, although no more are opened
	isClosed bool
}

// A dialed session is one that a Dialer keeps, or makes at this moment.
type dialed struct {
	ready   chan struct{} // closed when the fields below are set
	session *Session
	err     error
}

// DialContext opens a stream to the listener at the address, which is one of this package; the
// network has no meaning. Programs that pass the host and port of a URL, such as an
// [net/http.Transport], get a function that passes the address instead:
//
//	DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
//		return dialer.DialContext(ctx, network, "unix:/run/app.sock")
//	},
func (d *Dialer) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	if d == nil {
		return nil, d.opError(wrap("dial", errNoDialer))
	}
	for {
		entry, isNew, err := d.entry(address)
		if err != nil {
			return nil, d.opError(err)
		}
		if isNew {
			entry.session, entry.err = DialSession(ctx, address, &d.Config)
			close(entry.ready)
		}
		select {
		case <-entry.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if entry.err != nil {
			d.forget(address, entry)
			if isNew {
				return nil, d.opError(entry.err)
			}
			continue // the context of whoever dialed may have ended
		}
		stream, err := entry.session.open(ctx, layout.OpenContentBytes, nil)
		if err == nil {
			return stream, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		d.forget(address, entry)
		if isNew {
			return nil, d.opError(err)
		}
	}
}

// errNoDialer is why nothing is dialed without a dialer.
var errNoDialer = &wire.Failure{
	Number: layout.ErrorSetting,
	Text:   "the Dialer is nil: pass the address of a partywall.Dialer, whose zero value is ready",
}

// entry returns the session of the address, and whether the caller has to make it.
func (d *Dialer) entry(address string) (*dialed, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isClosed {
		return nil, false, wrap("dial", wire.ErrClosed)
	}
	if entry := d.sessions[address]; entry != nil {
		return entry, false, nil
	}
	if d.sessions == nil {
		d.sessions = make(map[string]*dialed)
	}
	entry := &dialed{ready: make(chan struct{})}
	d.sessions[address] = entry
	return entry, true, nil
}

// forget takes a session out of use on which no stream can be opened. It is closed when its streams
// have ended.
func (d *Dialer) forget(address string, entry *dialed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sessions[address] != entry {
		return
	}
	delete(d.sessions, address)
	if entry.session == nil {
		return
	}
	if d.retired == nil {
		d.retired = make(map[*Session]struct{})
	}
	d.retired[entry.session] = struct{}{}
	go func() {
		closeDrained(entry.session)
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.retired, entry.session)
	}()
}

// Close closes all sessions. Streams that are open end.
func (d *Dialer) Close() error {
	if d == nil {
		return d.opError(wrap("close", errNoDialer))
	}
	d.mu.Lock()
	sessions, retired := d.sessions, slices.Collect(maps.Keys(d.retired))
	d.sessions, d.isClosed = nil, true
	d.mu.Unlock()
	for _, session := range retired {
		_ = session.Close()
	}
	for _, entry := range sessions {
		<-entry.ready
		if entry.session != nil {
			_ = entry.session.Close()
		}
	}
	return nil
}

func (d *Dialer) opError(err error) error {
	if err == context.Canceled || err == context.DeadlineExceeded {
		return err
	}
	return &net.OpError{Op: "dial", Net: networkName, Err: err}
}

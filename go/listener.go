// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/wire"
)

// A Listener is a [net.Listener] whose connections are streams: those of all sessions that peers
// open with it. It serves HTTP, gRPC and whatever else takes a net.Listener.
type Listener struct {
	sessions *SessionListener
	streams  chan *Stream
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	served   sync.WaitGroup
}

var _ net.Listener = (*Listener)(nil)

// Listen listens on an address for sessions and accepts their streams. If config is nil, it is the
// default configuration. See [ListenSession].
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

// Accept waits for the next stream, which is a [*Stream]. If a peer is refused, breaks a rule or
// dies, Accept goes on waiting. Only after [Listener.Close] it fails, with an error that wraps
// [net.ErrClosed].
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

// Addr returns the address of the listener. If the system has chosen its port, the address has this
// port.
func (l *Listener) Addr() net.Addr { return l.sessions.Addr() }

// Close closes the listener. Accepted streams go on. Each of their sessions asks its peer to open
// no more streams, and is closed once its last stream has ended.
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

func (l *Listener) serve() {
	for {
		session, err := l.sessions.Accept(l.ctx)
		if err != nil {
			return
		}
		l.served.Go(func() { l.serveSession(session) })
	}
}

// serveSession passes the streams of one session to Accept, until the session is over or the
// listener is closed.
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
	// The listener is closed. This loop also refuses the streams that came before and that nobody
	// has accepted. AcceptStream does not wait here, because its context has ended.
	for {
		stream, err := session.AcceptStream(l.ctx)
		if err != nil {
			break
		}
		stream.stream.Refuse()
	}
	go closeDrained(session)
}

func closeDrained(session *Session) {
	// The error is ignored: it means that the session is over already.
	_ = session.Drained(context.Background())
	_ = session.Close()
}

// Dial connects to a [Listener], or another listener of sessions, and opens a stream in the new
// session. Closing the stream closes this session.
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

// A Dialer opens streams to listeners as a net.Dialer opens connections. It keeps one session for
// each address, and opens a new stream in this session for each call. The zero value is ready for
// use. Any number of goroutines may use it.
type Dialer struct {
	// Config has the settings of all sessions that the Dialer makes.
	Config Config

	mu       sync.Mutex
	sessions map[string]*dialed
	retired  map[*Session]struct{} // those whose streams go on, although no more are opened
	isClosed bool
}

// A dialed is a session that a Dialer keeps, or is about to make.
type dialed struct {
	ready   chan struct{} // closed when the fields below are set
	session *Session
	err     error
}

// DialContext opens a stream to the listener at the address, such as "unix:/run/app.sock". The
// second argument, a network, is ignored. Programs that pass the host and port of a URL, such as an
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

// errNoDialer is the error of calling a method of a Dialer that is nil.
var errNoDialer = &wire.Failure{
	Number: layout.ErrorSetting,
	Text:   "the Dialer is nil: pass the address of a partywall.Dialer, whose zero value is ready",
}

// entry returns the session that the Dialer keeps for the address. The second result is true if the
// caller has to make this session.
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

// forget removes from the Dialer a session in which no stream can be opened any more. The session
// is closed when its streams have ended.
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

// Close closes all sessions of the Dialer. Streams that are still open end.
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
	var dialing *Error
	if errors.As(err, &dialing) && dialing.Op == "dial" {
		err = dialReason{whole: dialing}
	}
	return &net.OpError{Op: "dial", Net: networkName, Err: err}
}

// A dialReason is the error of a dial within a [net.OpError], whose text names the operation
// already.
type dialReason struct{ whole *Error }

// Error returns the reason without the operation.
func (r dialReason) Error() string { return r.whole.err.Error() }

// Unwrap returns the whole error.
func (r dialReason) Unwrap() error { return r.whole }

// Timeout reports whether a deadline ended the dial.
func (r dialReason) Timeout() bool { return r.whole.Timeout() }

// Temporary reports what the whole error reports.
func (r dialReason) Temporary() bool { return r.whole.Temporary() }

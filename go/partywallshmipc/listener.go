// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallshmipc

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	partywall "partywall.test/go"
)

// ListenCallback has the functions that a [Listener] calls.
type ListenCallback interface {
	// OnNewStream is called for each new stream. The streams of one session are passed to it one
	// after the other, by a goroutine of the session.
	OnNewStream(s *Stream)
	// OnShutdown is called when the listener closes.
	OnShutdown(reason string)
}

// ListenerConfig has the settings of a [Listener].
type ListenerConfig struct {
	// Config is the configuration of sessions with clients of shmipc-go.
	*Config
	// Network is "unix" or "tcp", the kind of the listener's socket.
	Network string
	// ListenPath is the path of the socket, or a host and port.
	ListenPath string
	// Partywall is the configuration of sessions with clients of this package. Admit and SocketMode
	// in it apply to all clients. If StreamWindow in it is zero, it is 8 MiB.
	Partywall partywall.Config
}

// NewDefaultListenerConfig returns the default settings of a listener at an address.
func NewDefaultListenerConfig(listenPath, network string) *ListenerConfig {
	return &ListenerConfig{Config: DefaultConfig(), Network: network, ListenPath: listenPath}
}

// A Listener serves clients of this package, and clients of shmipc-go.
type Listener struct {
	config   ListenerConfig
	callback ListenCallback
	listener net.Listener
	file     os.FileInfo     // of a Unix socket with a path; nil otherwise
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	slots    chan struct{} // holds one for each handshake under way

	mu       sync.Mutex
	isClosed bool
	isKept   bool // Close does not remove the file
	sessions map[*Session]struct{}
}

var _ net.Listener = (*Listener)(nil)

// NewListener listens at the address of the configuration. A socket file on which no process
// listens any more is replaced.
func NewListener(callback ListenCallback, config *ListenerConfig) (*Listener, error) {
	if callback == nil {
		return nil, errors.New("partywallshmipc: the callback of a listener is nil")
	}
	listener, err := listen(config)
	if err != nil {
		return nil, err
	}
	l := &Listener{
		config: *config, callback: callback, listener: listener,
		slots:    make(chan struct{}, handshakesMax),
		sessions: make(map[*Session]struct{}),
	}
	if socket, ok := listener.(*net.UnixListener); ok && config.ListenPath[0] != '@' {
		socket.SetUnlinkOnClose(false)
		if l.file, err = os.Lstat(config.ListenPath); err != nil {
			_ = listener.Close()
			return nil, err
		}
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l, nil
}

// Addr returns the address of the listening socket.
func (l *Listener) Addr() net.Addr { return l.listener.Addr() }

// Accept always fails, because the listener passes its streams to its callback.
func (l *Listener) Accept() (net.Conn, error) {
	return nil, errors.New("partywallshmipc: streams are passed to OnNewStream")
}

// Run accepts connections until the listener is closed. If a single connection fails, Run goes on.
func (l *Listener) Run() error {
	for {
		select {
		case l.slots <- struct{}{}:
		case <-l.ctx.Done():
			return nil
		}
		conn, err := l.listener.Accept()
		if err == nil {
			go l.serve(conn)
			continue
		}
		<-l.slots
		if errors.Is(err, net.ErrClosed) {
			return l.Close()
		}
		select {
		case <-time.After(acceptPause):
		case <-l.ctx.Done():
			return nil
		}
	}
}

// serve makes a session on an accepted connection, and passes the streams of the session to the
// callback.
func (l *Listener) serve(conn net.Conn) {
	session, err := serve(l.ctx, conn, l.config.Config, &l.config.Partywall)
	<-l.slots
	if err != nil {
		if l.config.Partywall.OnRefused != nil {
			l.config.Partywall.OnRefused(err)
		}
		return
	}
	defer session.Close()
	if !l.add(session) {
		return
	}
	defer l.remove(session)
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			return
		}
		l.callback.OnNewStream(stream)
	}
}

// add adds a session to those that Close will close. It returns false if the listener is closed
// already.
func (l *Listener) add(session *Session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isClosed {
		l.sessions[session] = struct{}{}
	}
	return !l.isClosed
}

func (l *Listener) remove(session *Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sessions, session)
}

// Close closes the listener and all its sessions.
func (l *Listener) Close() error {
	l.mu.Lock()
	if l.isClosed {
		l.mu.Unlock()
		return nil
	}
	l.isClosed = true
	sessions := l.sessions
	l.sessions = nil
	l.mu.Unlock()
	l.cancel()
	// Close removes the socket file before it closes the socket: Run returns as soon as the socket
	// is closed, and the process may end then.
	err := errors.Join(l.unlink(), l.listener.Close())
	l.callback.OnShutdown("the listener was closed")
	for session := range sessions {
		_ = session.Close()
	}
	return err
}

// SetUnlinkOnClose sets whether Close removes the file of a Unix socket, which is the default.
func (l *Listener) SetUnlinkOnClose(unlink bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isKept = !unlink
}

// unlink removes the socket file, unless another listener has replaced it.
func (l *Listener) unlink() error {
	l.mu.Lock()
	isKept := l.isKept
	l.mu.Unlock()
	if l.file == nil || isKept {
		return nil
	}
	if now, err := os.Lstat(l.config.ListenPath); err != nil || !os.SameFile(now, l.file) {
		return nil
	}
	return os.Remove(l.config.ListenPath)
}

const (
	// handshakesMax bounds the handshakes that a listener has under way at a time.
	handshakesMax = 64
	// acceptPause is the pause after a call of Accept has failed, so that a lasting failure, such
	// as a lack of descriptors, does not occupy a processor.
	acceptPause = 10 * time.Millisecond
)

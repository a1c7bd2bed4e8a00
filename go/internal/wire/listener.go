// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"sync"
	"time"

	"partywall.test/go/internal/layout"
)

// ListenOptions are the settings that concern a listener, and not its single connections.
type ListenOptions struct {
	HandshakeTimeout time.Duration
	HandshakesMax    int
	SocketMode       fs.FileMode
	AllowRemote      bool        // listen beyond loopback addresses
	OnRefused        func(error) // is called for each connection that fails; may be nil
}

// A Listener accepts connections. One goroutine accepts sockets, and a goroutine for each socket
// makes the handshake, so that no handshake delays another (SPEC 2.7).
//
//	accept ─▶ fewer than HandshakesMax ─▶ handshake ─▶ Accept
//	                                           └─▶ OnRefused
//
// At most HandshakesMax connections are on this way at a time. While as many are, the oldest peer
// that has sent nothing is refused; further connections wait in the backlog of the socket.
type Listener struct {
	address  Address
	settings Settings
	options  ListenOptions
	listener net.Listener
	file     socketFile

	ready  chan *Connection
	slots  chan struct{} // holds one for each handshake under way
	over   chan struct{} // closed by Close
	once   sync.Once
	served sync.WaitGroup

	mutex   sync.Mutex
	pending map[*pendingPeer]struct{}
}

// pendingPeer is a peer whose handshake with the listener is not finished.
type pendingPeer struct {
	conn  net.Conn
	since time.Time
	// isTouched reports whether the peer has sent at least one byte.
	isTouched func() bool
}

// Listen begins to listen at an address. The settings s are those of each accepted connection.
func Listen(a Address, s Settings, o ListenOptions) (*Listener, error) {
	l := &Listener{
		address: a, settings: s, options: o,
		ready:   make(chan *Connection),
		slots:   make(chan struct{}, o.HandshakesMax),
		over:    make(chan struct{}),
		pending: make(map[*pendingPeer]struct{}),
	}
	var err error
	if a.IsUnix() {
		l.listener, l.file, err = listenUnix(a, o.SocketMode)
	} else {
		l.listener, err = listenTCP(a, o.AllowRemote)
	}
	if err != nil {
		return nil, err
	}
	if !a.IsUnix() {
		l.address.Name = l.listener.Addr().String()
	}
	l.settings.Address = l.address.String()
	l.served.Go(l.serve)
	return l, nil
}

// listenTCP listens at a TCP address. Without allowRemote, only loopback addresses are allowed.
func listenTCP(a Address, allowRemote bool) (net.Listener, error) {
	resolved, err := net.ResolveTCPAddr("tcp", a.Name)
	if err != nil {
		return nil, &Failure{Number: layout.ErrorAddressUnresolved, Err: err}
	}
	if !resolved.IP.IsLoopback() && !allowRemote {
		return nil, &Failure{
			Number: layout.ErrorNotLoopback,
			Text: a.String() + " can be reached from other hosts, and TCP is neither encrypted nor " +
				"authenticated: choose a loopback address, or set Config.AllowRemote",
		}
	}
	listener, err := net.ListenTCP("tcp", resolved)
	if err != nil {
		return nil, listenFailure(err)
	}
	return listener, nil
}

// Address returns the address of the listener. If the system has chosen its port, the address has
// this port.
func (l *Listener) Address() Address { return l.address }

// Accept waits for the next connection. The error is ErrClosed, or the error of ctx.
func (l *Listener) Accept(ctx context.Context) (*Connection, error) {
	select {
	case <-l.over:
		return nil, ErrClosed
	default:
	}
	select {
	case c := <-l.ready:
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.over:
		return nil, ErrClosed
	}
}

// Close closes the listener and ends all unfinished handshakes, and removes the socket file.
func (l *Listener) Close() error {
	err := ErrClosed
	l.once.Do(func() {
		close(l.over)
		err = l.listener.Close()
		l.file.remove()
		l.mutex.Lock()
		for peer := range l.pending {
			_ = peer.conn.SetDeadline(time.Unix(1, 0))
		}
		l.mutex.Unlock()
		l.served.Wait()
	})
	return err
}

func (l *Listener) serve() {
	for {
		conn, err := l.listener.Accept()
		switch {
		case err == nil && l.takeSlot():
			l.served.Go(func() {
				defer func() { <-l.slots }()
				l.shake(conn)
			})
			continue
		case err == nil:
			_ = conn.Close()
			return
		case errors.Is(err, net.ErrClosed):
			return
		}
		l.refused(&Failure{Number: acceptNumber(err), Err: err})
		select {
		case <-time.After(acceptPause):
		case <-l.over:
			return
		}
	}
}

func acceptNumber(err error) layout.ErrorNumber {
	if isDescriptorLimit(err) {
		return layout.ErrorDescriptorLimit
	}
	return layout.ErrorAcceptingFailed
}

// takeSlot waits until another handshake may begin. While HandshakesMax handshakes are under way,
// it refuses the oldest peer that has sent nothing. It returns false if the listener is closed
// first.
func (l *Listener) takeSlot() bool {
	for {
		select {
		case l.slots <- struct{}{}:
			return true
		case <-l.over:
			return false
		case <-time.After(untouchedMin / 10):
		}
		l.evict()
	}
}

// evict ends the handshake of the oldest peer that has sent nothing, if this peer had at least 100
// ms for it. It sets a deadline on the peer's socket. This cannot hit an established connection,
// because a peer whose handshake is done is no longer in the listener's list of unfinished
// handshakes.
func (l *Listener) evict() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if oldest := l.oldestUntouched(); oldest != nil && time.Since(oldest.since) >= untouchedMin {
		_ = oldest.conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// oldestUntouched returns the oldest of the peers that have sent no byte yet. The caller holds the
// mutex.
func (l *Listener) oldestUntouched() *pendingPeer {
	var oldest *pendingPeer
	for peer := range l.pending {
		if !peer.isTouched() && (oldest == nil || peer.since.Before(oldest.since)) {
			oldest = peer
		}
	}
	return oldest
}

// shake performs the handshake on one socket, and passes the new connection to Accept.
func (l *Listener) shake(conn net.Conn) {
	now := time.Now()
	if err := conn.SetDeadline(now.Add(l.options.HandshakeTimeout)); err != nil {
		_ = conn.Close()
		return
	}
	handshake, err := NewHandshake(conn, &l.settings)
	if err != nil {
		l.refused(err)
		return
	}
	peer := &pendingPeer{conn, now, handshake.IsTouched}
	if !l.add(peer) {
		_ = conn.Close()
		return
	}
	handshake.beforeRun = func() { l.remove(peer) }
	connection, err := handshake.Run()
	l.remove(peer)
	if err != nil {
		l.refused(err)
		return
	}
	select {
	case l.ready <- connection:
	case <-l.over:
		connection.Interrupt()
		connection.Close()
	}
}

// add adds a peer to those whose handshake is under way. It returns false if the listener is
// closed.
func (l *Listener) add(peer *pendingPeer) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	select {
	case <-l.over:
		return false
	default:
		l.pending[peer] = struct{}{}
		return true
	}
}

func (l *Listener) remove(peer *pendingPeer) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	delete(l.pending, peer)
}

func (l *Listener) refused(err error) {
	select {
	case <-l.over:
	default:
		if l.options.OnRefused != nil {
			l.options.OnRefused(err)
		}
	}
}

const (
	// acceptPause is the pause after the system has failed to accept a socket, so that a lasting
	// failure, such as a lack of descriptors, does not occupy a processor.
	acceptPause = 20 * time.Millisecond
	// untouchedMin is the time for which the listener keeps a new peer that has sent nothing, even
	// if other peers wait for a handshake (SPEC 2.7).
	untouchedMin = 100 * time.Millisecond
)

// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/sys"
	"partywall.test/go/internal/transcript"
)

// This test replays the handshakes recorded in spec/handshakes over real sockets with real
// descriptors. A test of package handshake replays them with the state machine alone, cut into
// pieces in every way.
func TestTranscriptsOverSockets(t *testing.T) {
	before := 0
	for i, script := range transcript.All(t) {
		t.Run(script.Name(), func(t *testing.T) {
			if script.BeginsOnSocket() {
				t.Skip("this module does not begin on the socket (SPEC 2.9)")
			}
			playOverSocket(t, script)
		})
		if i == 0 {
			before = openDescriptors(t)
		}
		// A closed TCP socket stays open until it has read the bytes that are still on their way,
		// so the test waits for that.
		for end := time.Now().Add(testTime); openDescriptors(t) > before; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatalf("%s: %d descriptors are open, %d before", script.File, openDescriptors(t), before)
			}
		}
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// ended says how the handshake has ended at the side under test.
type ended struct {
	connection *Connection
	err        error
}

func (e ended) String() string {
	switch {
	case e.err != nil:
		return fmt.Sprintf("fails %d", Number(e.err))
	case e.connection.Outcome.IsShared:
		return "shm"
	}
	return fmt.Sprintf("socket %d", e.connection.Outcome.Reason)
}

// playOverSocket replays a recorded handshake, in which the test acts as the peer of a listener or
// a dialer.
func playOverSocket(t *testing.T, script transcript.Transcript) {
	p := &socketPlayer{t: t, isConnector: script.IsAcceptor(), entries: 8}
	s, network := settingsOf(t, script)
	results := make(chan ended, 1)
	var expire func()
	stop := func() {}
	if p.isConnector {
		p.conn, expire, stop = beginAcceptor(t, s, network, results)
	} else {
		p.conn, expire = beginConnector(t, s, network, results)
	}
	isClosed := false
	for _, line := range script.Lines[1 : len(script.Lines)-1] {
		switch line[0] {
		case "send":
			p.send(line[2], line[3])
		case "receive":
			p.receive(line[1], line[2])
		case "close":
			p.flush()
			isClosed = true
			_ = p.conn.Close()
		case "silence":
			p.flush()
			expire()
		}
	}
	p.flush()
	code := layout.RejectCode(0)
	want := script.Outcome()
	if strings.HasPrefix(want, "fails") && !isClosed {
		code = p.reject()
	}
	select {
	case e := <-results:
		found := e.String()
		if e.err != nil {
			found = fmt.Sprintf("%s %d", found, code)
		} else {
			e.connection.Interrupt()
			e.connection.Close()
		}
		if found != want {
			t.Errorf("ends with %q, want %q (%v)", found, want, e.err)
		}
	case <-time.After(testTime):
		t.Error("the handshake does not end")
	}
	_ = p.conn.Close()
	stop()
}

// settingsOf returns what the side under test needs for this recorded handshake: its settings, and
// its network (unix or tcp).
func settingsOf(t *testing.T, script transcript.Transcript) (Settings, string) {
	s := readerSettings(TrustAuto)
	s.PeerBlocksMax, s.MessageMax, s.MapMax, s.SegmentsMax = 1024, 1<<20, 65<<20, 32
	network := "unix"
	for _, line := range script.Lines {
		switch strings.Join(line[:min(len(line), 3)], " ") {
		case "set transport socket":
			s.Transports = TransportSocket
		case "set transport shm":
			s.Transports = TransportSHM
		case "set trust no":
			s.Trust = TrustUntrusted
		case "set admit no":
			s.Admit = func(Peer) error { return errors.New("nobody is admitted") }
		case "set address tcp":
			network = "tcp"
		default:
			if line[0] == "set" {
				if _, err := fmt.Sscan(line[2], &s.MapMax); err != nil {
					t.Fatal(line, err)
				}
			}
		}
	}
	return s, network
}

// silenceTime is the time from the last frame of the peer until the deadline of the side under test
// passes, in a transcript with a silence. It only lets that side read the frame first, as a rule:
// the handshake ends in the same way if it does not.
const silenceTime = 30 * time.Millisecond

// beginAcceptor starts a listener, which is the side under test, and connects the test to it, which
// acts as the peer in the transcript. The function expire lets the deadline of the handshake pass,
// and stop closes the listener.
func beginAcceptor(t *testing.T, s Settings, network string, results chan ended) (
	conn net.Conn, expire, stop func(),
) {
	address := Address{network, "127.0.0.1:0"}
	if network == "unix" {
		address.Name = filepath.Join(t.TempDir(), "s")
	}
	listener, err := Listen(address, s, ListenOptions{
		HandshakeTimeout: testTime, HandshakesMax: 4, SocketMode: 0o600,
		OnRefused: func(err error) { results <- ended{err: err} },
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if c, err := listener.Accept(context.Background()); err == nil {
			results <- ended{connection: c}
		}
	}()
	conn, err = net.Dial(network, listener.Address().Name)
	if err != nil {
		t.Fatal(err)
	}
	return conn, func() { listener.expire(t) }, func() { _ = listener.Close() }
}

// expire waits until a handshake is under way, and sets its deadline to a time that is near.
func (l *Listener) expire(t *testing.T) {
	for end := time.Now().Add(testTime); time.Now().Before(end); runtime.Gosched() {
		l.mutex.Lock()
		count := len(l.pending)
		for peer := range l.pending {
			if err := peer.conn.SetDeadline(time.Now().Add(silenceTime)); err != nil {
				t.Error(err)
			}
		}
		l.mutex.Unlock()
		if count > 0 {
			return
		}
	}
	t.Error("no handshake is under way")
}

// A lateContext is a context whose deadline passes when the test closes the channel.
type lateContext struct {
	context.Context
	passed chan struct{}
}

func (c lateContext) Done() <-chan struct{} { return c.passed }

func (c lateContext) Err() error {
	select {
	case <-c.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// beginConnector starts a dialer, which is the side under test. The test accepts its socket, and
// acts as the peer in the transcript. The function expire lets the deadline of the handshake pass.
func beginConnector(t *testing.T, s Settings, network string, results chan ended) (
	conn net.Conn, expire func(),
) {
	name := "127.0.0.1:0"
	if network == "unix" {
		name = filepath.Join(t.TempDir(), "s")
	}
	listener, err := net.Listen(network, name)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s.Role = layout.RoleConnector
	ctx := lateContext{context.Background(), make(chan struct{})}
	go func() {
		address := Address{network, listener.Addr().String()}
		c, err := Dial(ctx, address, &s, testTime)
		results <- ended{c, err}
	}()
	conn, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return conn, func() { time.AfterFunc(silenceTime, func() { close(ctx.passed) }) }
}

// socketPlayer acts as the peer of the side under test in a recorded handshake, over a socket.
type socketPlayer struct {
	t           *testing.T
	conn        net.Conn
	isConnector bool
	session     [16]byte
	entries     uint64
	lastHello   []byte
	unsent      []byte
	descriptors []int
	cleanups    []func()
}

func (p *socketPlayer) send(digits, descriptors string) {
	b := p.lastHello
	if digits != "=" {
		var err error
		if b, err = hex.DecodeString(digits); err != nil {
			p.t.Fatal(err)
		}
	}
	if hello, err := layout.ParseHello(b); err == nil {
		p.entries = hello.PeerBlocksMax
		if p.isConnector {
			p.session = hello.Nonce
		}
	}
	size := uint64(0)
	if offer, err := layout.ParseOffer(b); err == nil {
		size = offer.RegionSize
	}
	for name := range strings.SplitSeq(descriptors, ",") {
		if name != "-" {
			p.descriptors = append(p.descriptors, p.descriptor(name, size))
		}
	}
	p.unsent = append(p.unsent, b...)
}

// flush sends, in one message, the frames that the test, acting as the peer, has collected. A
// failure is ignored: the side under test may have hung up, and the test then finds the reason in
// what that side has sent.
func (p *socketPlayer) flush() {
	if unix, ok := p.conn.(*net.UnixConn); ok && len(p.descriptors) > 0 {
		raw, err := unix.SyscallConn()
		if err != nil {
			p.t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) { _, _ = sys.Send(int(fd), p.unsent, p.descriptors...) })
	} else {
		_, _ = p.conn.Write(p.unsent)
	}
	for _, cleanup := range p.cleanups {
		cleanup()
	}
	p.unsent, p.descriptors, p.cleanups = nil, nil, nil
}

func (p *socketPlayer) receive(tag, pattern string) {
	p.t.Helper()
	p.flush()
	frame := make([]byte, len(pattern)/2)
	if err := p.conn.SetReadDeadline(time.Now().Add(testTime)); err != nil {
		p.t.Fatal(err)
	}
	if _, err := io.ReadFull(p.conn, frame); err != nil {
		p.t.Fatalf("%s: %v", tag, err)
	}
	found := hex.EncodeToString(frame)
	for i := range found {
		if pattern[i] != '.' && pattern[i] != found[i] {
			p.t.Fatalf("%s is\n%s, want\n%s", tag, found, pattern)
		}
	}
	if hello, err := layout.ParseHello(frame); err == nil {
		p.lastHello = frame
		if !p.isConnector {
			p.session = hello.Nonce
		}
	}
}

// reject returns the code of the REJECT that the side under test sends before it hangs up, or 0 if
// it sends none.
func (p *socketPlayer) reject() layout.RejectCode {
	if err := p.conn.SetReadDeadline(time.Now().Add(testTime)); err != nil {
		p.t.Fatal(err)
	}
	b, _ := io.ReadAll(p.conn)
	// If the side under test is a connector, it has sent HELLO and OFFER first, which the
	// transcript may leave unread, so the test skips these frames.
	for len(b) >= layout.FramePreambleBytes {
		if reject, err := layout.ParseReject(b); err == nil {
			return reject.Code
		}
		preamble, err := layout.ParsePreamble(b)
		if err != nil || len(b) < preamble.Length {
			break
		}
		b = b[preamble.Length:]
	}
	return 0
}

// descriptor returns a descriptor of the object that the transcript names. The test, which acts as
// the peer, closes the descriptor once it was sent.
func (p *socketPlayer) descriptor(name string, size uint64) int {
	p.t.Helper()
	role, entries, session := uint32(layout.RoleAcceptor), max(p.entries, 8), p.session
	if p.isConnector {
		role = layout.RoleConnector
	}
	pid := os.Getpid()
	switch name {
	case "pipe":
		read, write, err := os.Pipe()
		if err != nil {
			p.t.Fatal(err)
		}
		p.cleanups = append(p.cleanups, func() { _, _ = read.Close(), write.Close() })
		return int(read.Fd())
	case "eventfd":
		eventfd, err := sys.NewEventfd()
		if err != nil {
			p.t.Fatal(err)
		}
		p.cleanups = append(p.cleanups, eventfd.Close)
		return eventfd.Descriptor()
	case "pidfd-other":
		pid = os.Getppid()
		fallthrough
	case "pidfd":
		pidfd, err := sys.OpenPidfd(pid)
		if err != nil {
			p.t.Fatal(err)
		}
		p.cleanups = append(p.cleanups, pidfd.Close)
		return pidfd.Descriptor()
	case "region-session":
		session[15] ^= 1
	case "region-role":
		role = 1 - role
	case "region-size":
		size *= 2
	case "region-entries":
		entries /= 2
	}
	region, err := newOwnRegion(layout.Region{
		Size: size, RingOffset: 8192, RingSize: 4096, ReleaseOffset: 12288,
		ReleaseEntries: entries, SlabOffset: 16384, SlabSize: size - 16384,
		SessionID: session, Role: role,
	}, "")
	if err != nil {
		p.t.Fatal(err)
	}
	p.cleanups = append(p.cleanups, region.release)
	return region.region.Descriptor()
}

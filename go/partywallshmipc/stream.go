// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallshmipc

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudwego/shmipc-go"

	partywall "partywall.test/go"
)

// A Stream carries bytes in both directions within a session. One goroutine at a time reads, and
// one writes.
type Stream struct {
	carrier
	session *Session
	pool    *streamPool // nil if no SessionManager has opened it

	hasCallbacks atomic.Bool
	isClosed     atomic.Bool
	inCallback   sync.Mutex // held while OnData runs, which may use the buffers
	closing      sync.Once
}

// carrier is the stream that does the work of a [Stream]: one of partywall, or one of shmipc-go.
type carrier interface {
	net.Conn
	BufferReader() BufferReader
	BufferWriter() BufferWriter
	Flush(endStream bool) error
	IsOpen() bool
	ReleaseReadAndReuse()
	StreamID() uint32
}

var (
	_ net.Conn = (*Stream)(nil)
	_ carrier  = (*nativeStream)(nil)
	_ carrier  = (*shmipc.Stream)(nil)
)

// Session returns the session that carries the stream.
func (s *Stream) Session() *Session { return s.session }

// SetCallbacks sets the functions that a goroutine of the stream calls: OnData while bytes are
// unread, and OnRemoteClose or OnLocalClose at the end. From then on, only this goroutine may read.
func (s *Stream) SetCallbacks(callbacks StreamCallbacks) error {
	if s.hasCallbacks.Swap(true) {
		return ErrStreamCallbackHadExisted
	}
	if native, isNative := s.carrier.(*nativeStream); isNative {
		native.in.isEager = true
	}
	s.session.track(s)
	go s.call(callbacks)
	return nil
}

// call calls the callbacks of the stream until it ends. If OnData leaves bytes unread, it is called
// again: at once if it has read some, and otherwise once more bytes have come.
func (s *Stream) call(callbacks StreamCallbacks) {
	defer s.session.forget(s)
	reader := s.BufferReader()
	wanted := 1
	for !s.isClosed.Load() {
		if err := s.await(wanted); err == ErrTimeout {
			_ = s.SetReadDeadline(time.Time{}) // it was one for the reads of OnData
			continue
		} else if err != nil {
			break
		}
		before := reader.Len()
		s.inCallback.Lock()
		if !s.isClosed.Load() {
			callbacks.OnData(reader)
		}
		s.inCallback.Unlock()
		if s.isClosed.Load() {
			_ = s.finish()
			break
		}
		reader = s.BufferReader() // ReleaseReadAndReuse of shmipc-go exchanges it
		wanted = 1
		if left := reader.Len(); left >= before {
			wanted = left + 1
		}
	}
	if s.isClosed.Load() {
		callbacks.OnLocalClose()
	} else {
		callbacks.OnRemoteClose()
	}
}

// await waits until size bytes are unread in the receiving buffer.
func (s *Stream) await(size int) error {
	if native, isNative := s.carrier.(*nativeStream); isNative {
		return native.in.await(size) // no slice of them is returned, which would have to stay valid
	}
	_, err := s.BufferReader().Peek(size)
	return err
}

// Close closes the stream. The peer still receives what was flushed. While OnData runs, the stream
// is closed only when OnData has returned.
func (s *Stream) Close() error {
	if s.isClosed.Swap(true) || !s.inCallback.TryLock() {
		return nil
	}
	defer s.inCallback.Unlock()
	return s.finish()
}

// finish closes the underlying stream of partywall or shmipc-go. Only the first call has an effect.
func (s *Stream) finish() error {
	var err error
	s.closing.Do(func() { err = s.carrier.Close() })
	return err
}

// nativeStream lets a stream of package partywall, with a receiving and a sending buffer, do the
// work of a [Stream] of this package.
type nativeStream struct {
	*partywall.Stream
	in       reader
	out      writer
	isClosed atomic.Bool
	open     *openStreams // of the session; may be nil
}

// openStreams has the streams of a session that are not closed. So what a program has read stays
// valid until then, even if the program keeps no reference to the stream.
type openStreams struct {
	mu      sync.Mutex
	streams map[*nativeStream]struct{}
}

func newOpenStreams() *openStreams {
	return &openStreams{streams: make(map[*nativeStream]struct{})}
}

func (o *openStreams) add(s *nativeStream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.streams[s] = struct{}{}
}

func (o *openStreams) remove(s *nativeStream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.streams, s)
}

func newNativeStream(stream *partywall.Stream) *nativeStream {
	b := &borrowed{}
	s := &nativeStream{
		Stream: stream,
		in:     reader{stream: stream, borrowed: b},
		out:    writer{stream: stream, borrowed: b},
	}
	runtime.AddCleanup(s, (*borrowed).release, b)
	return s
}

func (s *nativeStream) BufferReader() BufferReader { return &s.in }

func (s *nativeStream) BufferWriter() BufferWriter { return &s.out }

// Flush sends the bytes of the sending buffer. Its argument endStream has no effect: as in
// shmipc-go v0.2.0, the peer does not learn of it.
func (s *nativeStream) Flush(bool) error {
	if s.out.Len() == 0 {
		return nil
	}
	return s.out.flush()
}

// Read reads bytes.
func (s *nativeStream) Read(b []byte) (int, error) { return s.in.readInto(b) }

// Write sends the bytes of the sending buffer, and then b.
func (s *nativeStream) Write(b []byte) (int, error) {
	if err := s.Flush(false); err != nil {
		return 0, err
	}
	n, err := s.Stream.Write(b)
	return n, shmipcError(err)
}

// IsOpen reports whether the stream can still be used. It does not ask the peer, and so may be
// late.
func (s *nativeStream) IsOpen() bool {
	select {
	case <-s.Stream.Session().Done():
		return false
	default:
		return !s.isClosed.Load() && !s.in.isOver.Load()
	}
}

// ReleaseReadAndReuse ends the use of the bytes that earlier calls of the reading methods have
// returned.
func (s *nativeStream) ReleaseReadAndReuse() { s.in.ReleasePreviousRead() }

func (s *nativeStream) StreamID() uint32 { return s.Number() }

func (s *nativeStream) Close() error {
	s.isClosed.Store(true)
	if s.open != nil {
		s.open.remove(s)
	}
	return shmipcError(s.Stream.Close())
}

// A streamPool keeps idle streams of one session for their next use.
type streamPool struct {
	max int

	mu      sync.Mutex
	session *Session
	streams []*Stream
}

// get returns an idle stream that is still open, or opens a new stream.
func (p *streamPool) get() (*Stream, error) {
	p.mu.Lock()
	session := p.session
	for len(p.streams) > 0 {
		last := len(p.streams) - 1
		stream := p.streams[last]
		p.streams[last] = nil
		p.streams = p.streams[:last]
		if stream.session == session && stream.IsOpen() {
			p.mu.Unlock()
			return stream, nil
		}
		_ = stream.Close()
	}
	p.mu.Unlock()
	stream, err := session.OpenStream()
	if err != nil {
		return nil, err
	}
	stream.pool = p
	return stream, nil
}

// put keeps a stream for its next use if it is open and has neither callbacks nor unread or unsent
// bytes. It closes any other stream.
func (p *streamPool) put(stream *Stream) {
	stream.ReleaseReadAndReuse()
	isNew := stream.IsOpen() && !stream.hasCallbacks.Load() && stream.BufferReader().Len() == 0 &&
		stream.BufferWriter().Len() == 0
	p.mu.Lock()
	isKept := isNew && stream.session == p.session && len(p.streams) < p.max &&
		stream.SetDeadline(time.Time{}) == nil
	if isKept {
		p.streams = append(p.streams, stream)
	}
	p.mu.Unlock()
	if !isKept {
		_ = stream.Close()
	}
}

// replace sets the session of the pool, and closes the session that the pool had before.
func (p *streamPool) replace(session *Session) {
	p.mu.Lock()
	before := p.session
	p.session, p.streams = session, nil
	p.mu.Unlock()
	if before != nil {
		_ = before.Close()
	}
}

func (p *streamPool) current() *Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

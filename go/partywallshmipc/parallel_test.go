// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallshmipc

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/cloudwego/shmipc-go"

	partywall "partywall.test/go"
)

// BenchmarkParallelPingPong has the shape of the benchmark with this name in shmipc-go. There are
// as many goroutines as processors, each with a stream of one session; client and server are in one
// process. Unlike in shmipc-go, each message is copied out of a buffer and into one. shmipc-go has
// the buffer sizes of its own benchmark.
func BenchmarkParallelPingPong(b *testing.B) {
	for _, size := range []int{64, 4096, 65_536, 1 << 20, 4 << 20} {
		for name, connect := range map[string]func(*testing.B, int) parallelPair{
			"shmipc-go": shmipcPair, "streams": streamPair, "this package": compatPair,
		} {
			b.Run(fmt.Sprintf("%d bytes/%s", size, name), func(b *testing.B) {
				benchParallel(b, size, connect(b, size))
			})
		}
	}
}

// A parallelPair is a client that opens streams and a server that accepts them.
type parallelPair struct {
	open   func() (io.ReadWriteCloser, error)
	accept func() (io.ReadWriteCloser, error)
}

func benchParallel(b *testing.B, size int, pair parallelPair) {
	b.SetBytes(int64(2 * size))
	b.ResetTimer()
	b.RunParallel(func(loop *testing.PB) {
		if !loop.Next() {
			return
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			stream, err := pair.accept()
			if err != nil {
				b.Error(err)
				return
			}
			defer stream.Close()
			buffer := make([]byte, size)
			for {
				if _, err := io.ReadFull(stream, buffer); err != nil {
					return
				}
				if _, err := stream.Write(buffer); err != nil {
					b.Error(err)
					return
				}
			}
		}()
		stream, err := pair.open()
		if err != nil {
			b.Error(err)
			return
		}
		buffer := make([]byte, size)
		for more := true; more; more = loop.Next() {
			if _, err := stream.Write(buffer); err != nil {
				b.Error(err)
				break
			}
			if _, err := io.ReadFull(stream, buffer); err != nil {
				b.Error(err)
				break
			}
		}
		if err := stream.Close(); err != nil {
			b.Error(err)
		}
		<-ended
	})
}

// A bufferStream is a stream that reads and writes through the buffers of shmipc-go.
type bufferStream struct {
	testStream
	release func()
}

func (s bufferStream) Read(b []byte) (int, error) {
	got, err := s.BufferReader().ReadBytes(len(b))
	n := copy(b, got)
	s.release()
	return n, err
}

func (s bufferStream) Write(b []byte) (int, error) {
	if _, err := s.BufferWriter().WriteBytes(b); err != nil {
		return 0, err
	}
	return len(b), s.Flush(false)
}

func shmipcPair(b *testing.B, size int) parallelPair {
	config := shmipc.DefaultConfig()
	config.QueueCap, config.ShareMemoryBufferCap = 65535, 256<<20
	if size >= 4<<20 {
		config.ShareMemoryBufferCap = 512 << 20
	}
	config.InitializeTimeout = testTime
	config.MemMapType, config.LogOutput = shmipc.MemMapTypeMemFd, io.Discard
	config.BufferSliceSizes = []*shmipc.SizePercentPair{
		{Size: uint32(size) + 256, Percent: 70}, {Size: 16 << 10, Percent: 20},
		{Size: 64 << 10, Percent: 10},
	}
	path := filepath.Join(b.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan *shmipc.Session, 1)
	go func() {
		defer close(accepted)
		conn, err := listener.Accept()
		if err != nil {
			b.Error(err)
			return
		}
		session, err := shmipc.Server(conn, config)
		if err != nil {
			b.Error(err)
			return
		}
		accepted <- session
	}()
	manager, err := shmipc.NewSessionManager(&shmipc.SessionManagerConfig{
		Config: config, Network: "unix", Address: path, SessionNum: 1, MaxStreamNum: 100,
	})
	if err != nil {
		b.Fatal(err)
	}
	server := <-accepted
	if server == nil {
		b.FailNow()
	}
	b.Cleanup(func() {
		_ = manager.Close()
		_ = server.Close()
	})
	wrap := func(stream *shmipc.Stream, err error) (io.ReadWriteCloser, error) {
		if err != nil {
			return nil, err
		}
		return bufferStream{stream, stream.ReleaseReadAndReuse}, nil
	}
	return parallelPair{
		func() (io.ReadWriteCloser, error) { return wrap(manager.GetStream()) },
		func() (io.ReadWriteCloser, error) { return wrap(server.AcceptStream()) },
	}
}

func compatPair(b *testing.B, _ int) parallelPair {
	path := filepath.Join(b.TempDir(), "s")
	accepted := make(chan *Stream, 100)
	listener, err := NewListener(acceptCallback{accepted}, NewDefaultListenerConfig(path, "unix"))
	if err != nil {
		b.Fatal(err)
	}
	go listener.Run()
	config := DefaultSessionManagerConfig()
	config.UnixPath = path
	manager, err := NewSessionManager(config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = manager.Close()
		_ = listener.Close()
	})
	return parallelPair{
		func() (io.ReadWriteCloser, error) {
			stream, err := manager.GetStream()
			if err != nil {
				return nil, err
			}
			return bufferStream{stream, stream.ReleaseReadAndReuse}, nil
		},
		func() (io.ReadWriteCloser, error) {
			stream := <-accepted
			return bufferStream{stream, stream.ReleaseReadAndReuse}, nil
		},
	}
}

type acceptCallback struct{ accepted chan *Stream }

func (c acceptCallback) OnNewStream(s *Stream) { c.accepted <- s }

func (acceptCallback) OnShutdown(string) {}

func streamPair(b *testing.B, _ int) parallelPair {
	address := "unix:" + filepath.Join(b.TempDir(), "s")
	listener, err := partywall.Listen(address, nil)
	if err != nil {
		b.Fatal(err)
	}
	dialer := &partywall.Dialer{}
	b.Cleanup(func() {
		_ = dialer.Close()
		_ = listener.Close()
	})
	return parallelPair{
		func() (io.ReadWriteCloser, error) { return dialer.DialContext(b.Context(), "", address) },
		func() (io.ReadWriteCloser, error) { return listener.Accept() },
	}
}

func init() {
	// Without this setting, shmipc-go writes its log into the output of the benchmark.
	if os.Getenv("SHMIPC_LOG_LEVEL") == "" {
		shmipc.SetLogLevel(logLevelNone)
	}
}

// logLevelNone is the level at which shmipc-go writes nothing.
const logLevelNone = 5

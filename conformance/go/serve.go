// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	shmipc "github.com/cloudwego/shmipc-go"
)

// server serves all streams of all sessions: on each it receives or sends the requests that the
// client announces.
type server struct {
	report *report
}

// OnNewStream is called by the library for each new stream, on the library's event thread, which
// must not block. So it only starts a goroutine that serves the stream.
func (s *server) OnNewStream(stream *shmipc.Stream) {
	s.report.with(func(r *report) { r.Streams++; r.StreamsOpen++ })
	go func() {
		if err := s.answer(stream); err != nil {
			s.report.fail(err)
			fmt.Fprintln(os.Stderr, "server:", err)
		}
		s.report.with(func(r *report) { r.StreamsOpen-- })
		_ = stream.Close()
	}()
}

// OnShutdown is a method that the library's interface ListenCallback requires; the server has
// nothing to do at that time.
func (s *server) OnShutdown(string) {}

// serve listens until stdin ends or SIGTERM arrives. The command "hot-restart EPOCH" moves the
// clients to another server and prints "restarted EPOCH"; the next line of stdin, or its end, then
// ends this server.
func serve(o *options) int {
	s := &server{report: newReport("server")}
	config := &shmipc.ListenerConfig{Config: o.config(), Network: o.network, ListenPath: o.address}
	config.Monitor = s.report
	listener, err := shmipc.NewListener(s, config)
	if err != nil {
		fmt.Fprintln(os.Stderr, "listening:", err)
		return 1
	}
	go func() { _ = listener.Run() }()
	fmt.Printf("ready %s\n", listener.Addr())
	lines := commands()
	if epoch, isRestart := strings.CutPrefix(<-lines, "hot-restart "); isRestart {
		if err := hotRestart(listener, number(epoch)); err != nil {
			s.report.fail(err)
		} else {
			// This server still serves the streams that were opened before the restart. The harness
			// knows when none is in use any more, and then ends this server.
			fmt.Printf("restarted %s\n", epoch)
			<-lines
		}
	} else {
		// The streams of a client that has disconnected end a little later than the client, so the
		// server waits until no stream is open.
		s.awaitEnds()
	}
	_ = listener.Close()
	s.awaitEnds()
	// Sessions report their metrics while they close, on their own threads. The library does not
	// say when all have, so this thread waits for a fixed time.
	time.Sleep(closingTime)
	removeLeftovers(o.prefix)
	return s.report.print()
}

// awaitEnds waits until no stream is open, or the deadline passes; the report then states the
// number of open streams.
func (s *server) awaitEnds() {
	deadline := time.Now().Add(endsTimeout)
	for open := uint64(1); open > 0 && time.Now().Before(deadline); time.Sleep(endsPause) {
		s.report.with(func(r *report) { open = r.StreamsOpen })
	}
}

// commands returns a channel with the lines of stdin, and "end" at the end of stdin or at SIGTERM.
func commands() <-chan string {
	lines := make(chan string, 1)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		lines <- "end"
	}()
	go func() {
		scanner := bufio.NewScanner(os.Stdin)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
		lines <- "end"
	}()
	return lines
}

// hotRestart makes the clients reconnect to the server that has taken over this server's address,
// and waits until they have reconnected. It uses the calls of the library's own example.
func hotRestart(listener *shmipc.Listener, epoch uint64) error {
	listener.SetUnlinkOnClose(false)
	if err := listener.HotRestart(epoch); err != nil {
		return fmt.Errorf("hot restart: %w", err)
	}
	for !listener.IsHotRestartDone() {
		time.Sleep(restartPoll)
	}
	return nil
}

func (s *server) answer(stream *shmipc.Stream) error {
	var buffer []byte
	for {
		p, err := readPlan(stream)
		if p == nil || err != nil {
			return orderly(err)
		}
		switch p.mode {
		case modeEcho:
			buffer, err = s.echo(stream, p, buffer)
		case modeUpload:
			s.upload(stream, p)
			return nil
		case modeDownload:
			return s.download(stream, p)
		case modeReport:
			err = s.tell(stream)
		default:
			err = fmt.Errorf("there is no mode %d", p.mode)
		}
		if err != nil {
			return err
		}
	}
}

// orderly returns nil for an error that only says that a stream or session ended before the client
// announced further requests, because such an end is no fault.
func orderly(err error) error {
	if errors.Is(err, shmipc.ErrStreamClosed) || errors.Is(err, shmipc.ErrEndOfStream) {
		return nil
	}
	return err
}

func (s *server) echo(stream *shmipc.Stream, p *plan, buffer []byte) ([]byte, error) {
	if buffer == nil {
		buffer = make([]byte, 0, 1024)
	}
	for index := uint64(0); index < p.requests; index++ {
		var err error
		buffer, err = readRequest(stream, p, index, pieceBytes, buffer[:0])
		if err != nil {
			return buffer, fmt.Errorf("server: %w", err)
		}
		if err = send(stream, buffer); err != nil {
			return buffer, fmt.Errorf("server, answer %d: %w", index, err)
		}
		s.count(len(buffer))
	}
	return buffer, nil
}

func (s *server) count(size int) {
	s.report.with(func(r *report) { r.Requests++; r.Bytes += uint64(size) })
}

// upload receives the requests that a plan announces, and counts the upload as whole, or as cut if
// the stream ended before the last request.
func (s *server) upload(stream *shmipc.Stream, p *plan) {
	for index := uint64(0); index < p.requests; index++ {
		if _, err := readRequest(stream, p, index, pieceBytes, nil); err != nil {
			fmt.Fprintln(os.Stderr, "upload:", err)
			s.report.with(func(r *report) { r.UploadsCut++ })
			return
		}
		s.count(p.size(index))
	}
	s.report.with(func(r *report) { r.UploadsWhole++ })
}

func (s *server) download(stream *shmipc.Stream, p *plan) error {
	var buffer []byte
	for index := uint64(0); index < p.requests; index++ {
		buffer = requestBytes(p, index, buffer)
		if err := send(stream, buffer); err != nil {
			return fmt.Errorf("server, download %d: %w", index, err)
		}
		s.count(len(buffer))
	}
	return nil // the caller of download closes the stream at once
}

func (s *server) tell(stream *shmipc.Stream) error {
	var answer []byte
	s.report.with(func(r *report) {
		for _, word := range []uint64{r.UploadsWhole, r.UploadsCut, r.StreamsOpen} {
			answer = binary.BigEndian.AppendUint64(answer, word)
		}
	})
	return send(stream, answer)
}

const (
	pieceBytes  = 64 << 10
	closingTime = 300 * time.Millisecond
	endsTimeout = 15 * time.Second
	endsPause   = 10 * time.Millisecond
	restartPoll = 50 * time.Millisecond
)

// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build linux

// The program bench compares round trips of partywall with those of shmipc-go and of a Unix socket
// of package net: two processes, interleaved rounds. Each message is copied from a buffer of the
// application and into one, at both ends. Each library waits as it does by default; "parked" is a
// channel of partywall that does not poll.
//
//	go run ./bench                     64 bytes to 1 MiB
//	go run ./bench -cpus 0,1           the two processes on one CPU each
//
// It prints the median of the rounds' medians in microseconds, their spread, and ratios.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cloudwego/shmipc-go"
	"golang.org/x/sys/unix"

	partywall "partywall.test/go"
	compat "partywall.test/go/partywallshmipc"
)

const (
	// echoVariable is the environment variable that makes this program the process that sends
	// messages back. Its value is a library, a message size and an address.
	echoVariable = "PARTYWALL_BENCH_ECHO"
	// pinnedVariable is the environment variable that says that this process already runs on the
	// CPU chosen for it.
	pinnedVariable = "PARTYWALL_BENCH_PINNED"
)

// libraries are the names of the libraries that are measured in turn. The table has the ratios of
// each to the last two, shmipc-go and the Unix socket "uds".
var libraries = []string{"channel", "parked", "stream", "compat", "shmipc-go", "uds"}

func main() {
	if what := os.Getenv(echoVariable); what != "" {
		fields := strings.SplitN(what, " ", 3)
		size, err := strconv.Atoi(fields[1])
		fail(err)
		fail(echo(fields[0], fields[2], size))
		return
	}
	rounds := flag.Int("rounds", 5, "rounds of each library and size")
	length := flag.Duration("time", 300*time.Millisecond, "length of a round")
	sizes := flag.String("sizes", "64,4096,65536,1048576", "sizes of the messages in bytes")
	cpus := flag.String("cpus", "", "the CPUs of the two processes, such as 0,1")
	flag.Parse()
	other := -1
	if own, second, ok := strings.Cut(*cpus, ","); ok {
		cpu, err := strconv.Atoi(own)
		fail(err)
		other, err = strconv.Atoi(second)
		fail(err)
		pin(cpu)
	}
	load, err := os.ReadFile("/proc/loadavg")
	fail(err)
	fmt.Printf("%s; CPUs: %q; load %s", runtime.Version(), *cpus, load)
	fmt.Println("| bytes | library | p50 in µs, median of rounds | least | greatest | to shmipc-go | to uds |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for text := range strings.SplitSeq(*sizes, ",") {
		size, err := strconv.Atoi(text)
		fail(err)
		fail(compare(size, *rounds, *length, other))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pin executes this program again with only one CPU allowed, so that all its threads run on that
// CPU.
func pin(cpu int) {
	if os.Getenv(pinnedVariable) != "" {
		return
	}
	runtime.LockOSThread()
	fail(setCPU(cpu))
	fail(syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), pinnedVariable+"=1")))
}

func setCPU(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(0, &set)
}

// compare measures the round trips of each library with messages of one size, and prints a row for
// each library.
func compare(size, rounds int, length time.Duration, cpu int) error {
	directory, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	medians := make(map[string][]float64)
	for range rounds {
		for _, library := range libraries {
			median, err := round(library, filepath.Join(directory, "s"), size, length, cpu)
			if err != nil {
				return fmt.Errorf("%s: %w", library, err)
			}
			medians[library] = append(medians[library], median)
		}
	}
	for _, library := range libraries {
		median := middle(medians[library])
		fmt.Printf("| %d | %s | %.2f | %.2f | %.2f | %.2f | %.2f |\n", size, library, median,
			slices.Min(medians[library]), slices.Max(medians[library]),
			median/middle(medians["shmipc-go"]), median/middle(medians["uds"]))
	}
	return nil
}

func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

type pipe interface {
	Send([]byte) error
	Recv([]byte) (int, error) // as many bytes as the buffer has
	Close() error
}

// bytePipe is a pipe whose messages are plain bytes of a known size.
type bytePipe struct{ net.Conn }

func (p bytePipe) Send(b []byte) error {
	_, err := p.Write(b)
	return err
}

func (p bytePipe) Recv(b []byte) (int, error) { return io.ReadFull(p.Conn, b) }

// bufferPipe is a pipe whose messages of a known size go through the buffers of shmipc-go, or the
// buffers of package partywallshmipc, which have the same methods.
type bufferPipe struct {
	stream interface {
		BufferReader() shmipc.BufferReader
		BufferWriter() shmipc.BufferWriter
		Flush(bool) error
		ReleaseReadAndReuse()
	}
	session io.Closer
}

func (p bufferPipe) Send(b []byte) error {
	if _, err := p.stream.BufferWriter().WriteBytes(b); err != nil {
		return err
	}
	return p.stream.Flush(false)
}

func (p bufferPipe) Recv(b []byte) (int, error) {
	got, err := p.stream.BufferReader().ReadBytes(len(b))
	n := copy(b, got)
	p.stream.ReleaseReadAndReuse()
	if errors.Is(err, shmipc.ErrStreamClosed) || errors.Is(err, shmipc.ErrEndOfStream) ||
		errors.Is(err, shmipc.ErrSessionShutdown) {
		return n, io.EOF
	}
	return n, err
}

func (p bufferPipe) Close() error { return p.session.Close() }

// round measures one library once, against a newly started process that sends the messages back.
// The result is the median round trip in microseconds.
func round(library, path string, size int, length time.Duration, cpu int) (float64, error) {
	listener, err := listen(library, path)
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	command, err := startEcho(library, path, size, cpu)
	if err != nil {
		return 0, err
	}
	end, err := listener.accept()
	if err != nil {
		return 0, err
	}
	// A first message is received before the measurement, because only that opens a stream of
	// shmipc-go.
	into := make([]byte, size)
	if _, err := end.Recv(into); err != nil {
		return 0, err
	}
	median, err := measure(end, into, length)
	if err != nil {
		return 0, err
	}
	_ = end.Close()
	return median, command.Wait()
}

func startEcho(library, path string, size, cpu int) (*exec.Cmd, error) {
	command := exec.Command("/proc/self/exe")
	command.Env = append(os.Environ(),
		fmt.Sprintf("%s=%s %d %s", echoVariable, library, size, path))
	command.Stderr = os.Stderr
	if cpu < 0 {
		return command, command.Start()
	}
	// The new process inherits the CPUs of the thread that starts it, so this thread runs on the
	// CPU of the new process for a moment.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, err
	}
	if err := setCPU(cpu); err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	return command, unix.SchedSetaffinity(0, &before)
}

// measure sends messages for the given time, waits for each to come back, and returns the median of
// the round trips in microseconds.
func measure(end pipe, into []byte, length time.Duration) (float64, error) {
	message := make([]byte, len(into))
	var times []time.Duration
	for started := time.Now(); time.Since(started) < length; {
		before := time.Now()
		if err := end.Send(message); err != nil {
			return 0, err
		}
		if _, err := end.Recv(into); err != nil {
			return 0, err
		}
		times = append(times, time.Since(before))
	}
	slices.Sort(times)
	return float64(times[len(times)/2].Nanoseconds()) / 1000, nil
}

// echo connects to the measuring process, sends one message, and then sends back each message that
// it receives.
func echo(library, path string, size int) error {
	end, err := dial(library, path)
	if err != nil {
		return err
	}
	into := make([]byte, size)
	for {
		if err := end.Send(into); err != nil {
			return err
		}
		if _, err := end.Recv(into); err == io.EOF {
			return end.Close()
		} else if err != nil && !errors.Is(err, syscall.ECONNRESET) {
			return err
		} else if err != nil {
			return nil // the session was closed before the stream
		}
	}
}

func channelConfig(library string) *partywall.Config {
	if library == "parked" {
		return &partywall.Config{Wait: partywall.WaitPark}
	}
	return nil
}

// A server listens at a path and accepts one connection of the library that is measured.
type server struct {
	io.Closer
	accept func() (pipe, error)
}

func listen(library, path string) (*server, error) {
	_ = os.Remove(path)
	ctx := context.Background()
	switch library {
	case "channel", "parked":
		listener, err := partywall.ListenChannel("unix:"+path, channelConfig(library))
		return &server{listener, func() (pipe, error) { return listener.Accept(ctx) }}, err
	case "stream":
		listener, err := partywall.Listen("unix:"+path, nil)
		return &server{listener, func() (pipe, error) {
			conn, err := listener.Accept()
			return bytePipe{conn}, err
		}}, err
	}
	bind := net.ListenConfig{}
	if library == "compat" {
		bind.Control = partywall.PassCredentials
	}
	listener, err := bind.Listen(ctx, "unix", path)
	return &server{listener, func() (pipe, error) {
		conn, err := listener.Accept()
		if err != nil || library == "uds" {
			return bytePipe{conn}, err
		}
		if library == "shmipc-go" {
			session, err := shmipc.Server(conn, memfd(shmipc.DefaultConfig()))
			if err != nil {
				return nil, err
			}
			stream, err := session.AcceptStream()
			return bufferPipe{stream, session}, err
		}
		session, err := compat.Server(conn, nil)
		if err != nil {
			return nil, err
		}
		stream, err := session.AcceptStream()
		return bufferPipe{stream, session}, err
	}}, err
}

// memfd returns a configuration of shmipc-go that uses memfds instead of named files, and writes no
// log.
func memfd(config *shmipc.Config) *shmipc.Config {
	config.MemMapType = shmipc.MemMapTypeMemFd
	config.LogOutput = io.Discard
	return config
}

func dial(library, path string) (pipe, error) {
	ctx := context.Background()
	switch library {
	case "channel", "parked":
		return partywall.DialChannel(ctx, "unix:"+path, channelConfig(library))
	case "stream":
		stream, err := partywall.Dial(ctx, "unix:"+path, nil)
		return bytePipe{stream}, err
	case "uds":
		conn, err := net.Dial("unix", path)
		return bytePipe{conn}, err
	case "shmipc-go":
		config := shmipc.DefaultSessionManagerConfig()
		config.Config, config.Network, config.Address = memfd(config.Config), "unix", path
		manager, err := shmipc.NewSessionManager(config)
		if err != nil {
			return nil, err
		}
		stream, err := manager.GetStream()
		return bufferPipe{stream, manager}, err
	}
	config := compat.DefaultSessionManagerConfig()
	config.UnixPath = path
	manager, err := compat.NewSessionManager(config)
	if err != nil {
		return nil, err
	}
	stream, err := manager.GetStream()
	return bufferPipe{stream, manager}, err
}

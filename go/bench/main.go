// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build linux

// The program bench compares round trips of channels and streams with those of a Unix socket of
// package net: two processes, the same bytes, interleaved rounds.
//
//	go run ./bench                     every transport, 64 bytes to 1 MiB
//	go run ./bench -cpus 0,1           the two processes on one CPU each
//	go run ./bench -transports park    one transport, and the Unix socket
//
// It prints the median of the rounds' medians in microseconds, and the processor time that both
// processes take for a round trip, each also as a ratio to that of the Unix socket. The processor
// time includes the start of the other process, which takes as long for each transport.
package main

import (
	"context"
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

	"golang.org/x/sys/unix"
	partywall "partywall.test/go"
)

const (
	// echoVariable is the environment variable that makes this program the process that sends
	// messages back. Its value is a transport, a message size and an address.
	echoVariable = "PARTYWALL_BENCH_ECHO"
	// pinnedVariable is the environment variable that says that this process already runs on the
	// CPU chosen for it.
	pinnedVariable = "PARTYWALL_BENCH_PINNED"
)

// transports are the names of the transports that the benchmark measures in turn. Each is compared
// with unixSocket, a socket of package net, which is measured last.
const (
	transports = "adaptive,park,untrusted,socket,stream,stream-park,stream-view"
	unixSocket = "uds"
)

func main() {
	if what := os.Getenv(echoVariable); what != "" {
		transport, arguments, _ := strings.Cut(what, " ")
		fail(echo(transport, arguments))
		return
	}
	rounds := flag.Int("rounds", 5, "rounds of each transport and size")
	length := flag.Duration("time", 300*time.Millisecond, "length of a round")
	sizes := flag.String("sizes", "64,4096,65536,1048576", "sizes of the messages in bytes")
	cpus := flag.String("cpus", "", "the CPUs of the two processes, such as 0,1")
	names := flag.String("transports", transports, "transports that are compared with uds")
	flag.Parse()
	own, other := pinned(*cpus)
	pin(own)
	fmt.Printf("%s, %s; p50 of a round trip in µs, median of %d rounds (ratio to uds; spread), "+
		"CPU time of both processes in µs (ratio to uds)\n",
		runtime.Version(), placement(*cpus), *rounds)
	chosen, err := choose(*names)
	fail(err)
	for text := range strings.SplitSeq(*sizes, ",") {
		size, err := strconv.Atoi(text)
		fail(err)
		fail(compare(chosen, size, *rounds, *length, other))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// choose returns the transports that a comma-separated list names, followed by the Unix socket with
// which they are compared.
func choose(names string) ([]string, error) {
	chosen := strings.Split(names, ",")
	for _, name := range chosen {
		if !slices.Contains(strings.Split(transports, ","), name) {
			return nil, fmt.Errorf("no transport %q; there are %s", name, transports)
		}
	}
	return append(chosen, unixSocket), nil
}

func placement(cpus string) string {
	if cpus == "" {
		return "not pinned"
	}
	return "pinned to " + cpus
}

// pinned returns the CPU of the measuring process and that of the echoing process, as the flag
// -cpus names them. Both are -1 if the flag is empty.
func pinned(cpus string) (int, int) {
	first, second, ok := strings.Cut(cpus, ",")
	if !ok {
		return -1, -1
	}
	own, err := strconv.Atoi(first)
	fail(err)
	other, err := strconv.Atoi(second)
	fail(err)
	return own, other
}

// pin executes this program again with only one CPU allowed, so that all its threads run on that
// CPU.
func pin(cpu int) {
	if cpu < 0 || os.Getenv(pinnedVariable) != "" {
		return
	}
	runtime.LockOSThread()
	fail(setCPU(cpu))
	environment := append(os.Environ(), pinnedVariable+"=1")
	fail(syscall.Exec("/proc/self/exe", os.Args, environment))
}

func setCPU(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(0, &set)
}

// compare measures the round trips of each transport with messages of one size, and prints them.
// The last transport must be the Unix socket, with which the others are compared.
func compare(transports []string, size, rounds int, length time.Duration, cpu int) error {
	directory, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	measured := make([]figures, len(transports))
	for range rounds {
		for i, transport := range transports {
			one, err := round(transport, filepath.Join(directory, "s"), size, length, cpu)
			if err != nil {
				return fmt.Errorf("%s: %w", transport, err)
			}
			measured[i].medians = append(measured[i].medians, one.median)
			measured[i].times = append(measured[i].times, one.cpu)
		}
	}
	uds := measured[len(measured)-1]
	fmt.Printf("%8d B", size)
	for i, transport := range transports {
		medians, times := measured[i].medians, measured[i].times
		fmt.Printf("  %s %.2f (%.3f; %.2f–%.2f), CPU %.2f (%.2f)", transport, middle(medians),
			middle(medians)/middle(uds.medians), slices.Min(medians), slices.Max(medians),
			middle(times), middle(times)/middle(uds.times))
	}
	fmt.Println()
	return nil
}

// figures has the median round trip and the processor time for a round trip, both in microseconds,
// of each round of one transport.
type figures struct{ medians, times []float64 }

// A trip has the figures of one round in microseconds: the median round trip, and the processor
// time of both processes for a round trip.
type trip struct {
	median float64
	cpu    float64 // mean processor time of both processes
}

func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

type pipe interface {
	Send([]byte) error
	Recv([]byte) (int, error)
	Close() error
}

// plain is a pipe whose messages are plain bytes of a known size, over a Unix socket or over a
// stream.
type plain struct{ net.Conn }

func (p plain) Send(b []byte) error {
	_, err := p.Write(b)
	return err
}

func (p plain) Recv(b []byte) (int, error) { return io.ReadFull(p.Conn, b) }

// views is a pipe over a stream without copies: a message is written where the peer reads it, and
// read where it lies.
type views struct{ *partywall.Stream }

func (v views) Send(b []byte) error {
	r, err := v.Reserve(len(b))
	if err != nil {
		return err
	}
	copy(r.Bytes(), b)
	return r.Commit(len(b))
}

func (v views) Recv([]byte) (int, error) {
	m, err := v.RecvMessage()
	if err != nil {
		return 0, err
	}
	defer m.Release()
	return m.Len(), nil
}

func ofStream(transport string, conn net.Conn) pipe {
	if stream, isStream := conn.(*partywall.Stream); isStream && transport == "stream-view" {
		return views{stream}
	}
	return plain{conn}
}

func config(transport string) *partywall.Config {
	switch transport {
	case "park", "stream-park":
		return &partywall.Config{Wait: partywall.WaitPark}
	case "untrusted":
		return &partywall.Config{Trust: partywall.TrustNobody}
	case "socket":
		return &partywall.Config{Transport: partywall.TransportSocket}
	}
	return &partywall.Config{}
}

// round measures one transport once, against a newly started process that sends the messages back.
func round(transport, path string, size int, length time.Duration, cpu int) (trip, error) {
	_ = os.Remove(path)
	accept, stop, err := listen(transport, path)
	if err != nil {
		return trip{}, err
	}
	defer stop()
	command, err := startEcho(transport, path, size, cpu)
	if err != nil {
		return trip{}, err
	}
	end, err := accept()
	if err != nil {
		return trip{}, err
	}
	times, used, err := measure(end, size, length)
	if err != nil {
		return trip{}, err
	}
	if err := end.Close(); err != nil {
		return trip{}, err
	}
	if err := command.Wait(); err != nil {
		return trip{}, err
	}
	used += command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	return trip{
		median: microseconds(times[len(times)/2]),
		cpu:    microseconds(used) / float64(len(times)),
	}, nil
}

// listen listens at path for the process that sends messages back. It returns a function that
// accepts this process, and a function that closes the listener.
func listen(transport, path string) (func() (pipe, error), func(), error) {
	if transport == unixSocket {
		listener, err := net.Listen("unix", path)
		if err != nil {
			return nil, nil, err
		}
		accept := func() (pipe, error) {
			conn, err := listener.Accept()
			return plain{conn}, err
		}
		return accept, func() { _ = listener.Close() }, nil
	}
	if strings.HasPrefix(transport, "stream") {
		listener, err := partywall.Listen("unix:"+path, config(transport))
		if err != nil {
			return nil, nil, err
		}
		accept := func() (pipe, error) {
			conn, err := listener.Accept()
			return ofStream(transport, conn), err
		}
		return accept, func() { _ = listener.Close() }, nil
	}
	listener, err := partywall.ListenChannel("unix:"+path, config(transport))
	if err != nil {
		return nil, nil, err
	}
	accept := func() (pipe, error) { return listener.Accept(context.Background()) }
	return accept, func() { _ = listener.Close() }, nil
}

func startEcho(transport, path string, size, cpu int) (*exec.Cmd, error) {
	command := exec.Command("/proc/self/exe")
	command.Env = append(os.Environ(),
		fmt.Sprintf("%s=%s %d %s", echoVariable, transport, size, path))
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

// measure sends messages for the given time, and waits for each to come back. It returns the times
// of the round trips in ascending order, and the processor time that this process has used.
func measure(end pipe, size int, length time.Duration) ([]time.Duration, time.Duration, error) {
	message, into := make([]byte, size), make([]byte, size)
	var times []time.Duration
	usedBefore, err := processorTime()
	if err != nil {
		return nil, 0, err
	}
	for started := time.Now(); time.Since(started) < length; {
		before := time.Now()
		if err := end.Send(message); err != nil {
			return nil, 0, err
		}
		if _, err := end.Recv(into); err != nil {
			return nil, 0, err
		}
		times = append(times, time.Since(before))
	}
	used, err := processorTime()
	slices.Sort(times)
	return times, used - usedBefore, err
}

func processorTime() (time.Duration, error) {
	var usage unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), err
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// echo connects to the measuring process, and sends back each message that it receives, until the
// connection ends.
func echo(transport, arguments string) error {
	text, path, _ := strings.Cut(arguments, " ")
	size, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	end, err := dial(transport, path)
	if err != nil {
		return err
	}
	into := make([]byte, size)
	for {
		n, err := end.Recv(into)
		if err == io.EOF {
			return end.Close()
		}
		if err != nil {
			return err
		}
		if err := end.Send(into[:n]); err != nil {
			return err
		}
	}
}

func dial(transport, path string) (pipe, error) {
	if transport == unixSocket {
		conn, err := net.Dial("unix", path)
		return plain{conn}, err
	}
	if strings.HasPrefix(transport, "stream") {
		conn, err := partywall.Dial(context.Background(), "unix:"+path, config(transport))
		return ofStream(transport, conn), err
	}
	return partywall.DialChannel(context.Background(), "unix:"+path, config(transport))
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build linux

package partywall

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Environment variables of a second process that a test starts: what the process does, at which
// address, and over which transport.
const (
	childVariable   = "PARTYWALL_TEST_CHILD"
	addressVariable = "PARTYWALL_TEST_ADDRESS"
	wayVariable     = "PARTYWALL_TEST_WAY"
	// killsVariable is the environment variable that raises the number of kills for each transport.
	killsVariable = "PARTYWALL_TEST_KILLS"
)

func TestMain(m *testing.M) {
	if arguments := os.Getenv(peerVariable); arguments != "" {
		os.Exit(runPeer(arguments))
	}
	if what := os.Getenv(childVariable); what != "" {
		if err := child(what); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is the second process of a test: it connects to the test, and then does what the argument
// names.
func child(what string) error {
	var config Config
	for _, w := range ways() {
		if w.name == os.Getenv(wayVariable) {
			config = w.config
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	defer cancel()
	channel, err := DialChannel(ctx, os.Getenv(addressVariable), &config)
	if err != nil {
		return err
	}
	defer channel.Close()
	switch what {
	case "echo":
		return echo(channel)
	case "flood":
		return flood(channel)
	case "heir":
		return leaveHeir(channel)
	}
	return fmt.Errorf("no such child: %s", what)
}

// flood sends numbered messages without end. After each message it writes to the output how many it
// has sent.
func flood(channel *Channel) error {
	var count [8]byte
	for i := uint64(0); ; i++ {
		if err := channel.Send(numbered(i)); err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(count[:], i+1)
		if _, err := os.Stdout.Write(count[:]); err != nil {
			return err
		}
	}
}

// leaveHeir starts a further process, which inherits the sockets of this one and keeps them open.
// It then writes the further process's id, and sends back all messages.
func leaveHeir(channel *Channel) error {
	heir := exec.Command("sleep", "600")
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, entry := range descriptors {
		number, _ := strconv.Atoi(entry.Name())
		target, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if err != nil || !strings.HasPrefix(target, "socket:") {
			continue
		}
		copied, err := syscall.Dup(number)
		if err != nil {
			return err
		}
		heir.ExtraFiles = append(heir.ExtraFiles, os.NewFile(uintptr(copied), target))
	}
	if err := heir.Start(); err != nil {
		return err
	}
	var pid [8]byte
	binary.LittleEndian.PutUint64(pid[:], uint64(heir.Process.Pid))
	if _, err := os.Stdout.Write(pid[:]); err != nil {
		return err
	}
	return echo(channel)
}

// numbered returns message number i. Some of the messages are so long that they go as blocks.
func numbered(i uint64) []byte { return numberedEvery(i, often) }

// startChild starts the second process of a test, and accepts the channel that this process opens.
func startChild(t *testing.T, listener *ChannelListener, w way, what string) (
	*exec.Cmd, io.Reader, *Channel,
) {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), childVariable+"="+what, wayVariable+"="+w.name,
		addressVariable+"="+listener.Addr().String())
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	channel, err := listener.Accept(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = channel.Close() })
	if err := channel.SetDeadline(time.Now().Add(testTime)); err != nil {
		t.Fatal(err)
	}
	if channel.Transport().IsShared != w.isShared {
		t.Fatalf("the transport is %v", channel.Transport())
	}
	return command, output, channel
}

func TestPeerIsAnotherProcess(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		command, _, channel := startChild(t, listen(t, w), w, "echo")
		peer := channel.Peer()
		if w.network == "tcp" {
			if peer.HasCredentials || peer.Trusted {
				t.Errorf("the peer is %+v", peer)
			}
		} else if peer.PID != command.Process.Pid || int(peer.UID) != os.Geteuid() ||
			peer.Trusted != (w.config.Trust != TrustNobody) {
			t.Errorf("the peer is %+v, want process %d", peer, command.Process.Pid)
		}
		for i := range uint64(200) {
			sent := numbered(i)
			if err := channel.Send(sent); err != nil {
				t.Fatal(err)
			}
			message, err := channel.RecvMessage()
			if err != nil || string(message.Bytes()) != string(sent) {
				t.Fatalf("message %d: %v", i, err)
			}
			message.Release()
		}
	})
}

// When a process is killed, its peer receives everything that the process had sent, in order and
// whole, and then the error that its peer has gone.
func TestKilledSenderLosesNothing(t *testing.T) {
	kills := 5
	if text := os.Getenv(killsVariable); text != "" {
		kills, _ = strconv.Atoi(text)
	}
	eachWay(t, func(t *testing.T, w way) {
		listener := listen(t, w)
		var slowest time.Duration
		for range kills {
			slowest = max(slowest, killSender(t, listener, w))
		}
		t.Logf("%d kills; the end was noticed at most %v after the kill", kills, slowest)
	})
}

func killSender(t *testing.T, listener *ChannelListener, w way) time.Duration {
	command, output, channel := startChild(t, listener, w, "flood")
	var sent atomic.Uint64
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		reader, count := bufio.NewReader(output), make([]byte, 8)
		for {
			if _, err := io.ReadFull(reader, count); err != nil {
				return
			}
			sent.Store(binary.LittleEndian.Uint64(count))
		}
	}()
	kill := rand.Uint64N(3000)
	var killed time.Time
	for i := uint64(0); ; i++ {
		if i == kill {
			_ = command.Process.Signal(syscall.SIGKILL)
			killed = time.Now()
		}
		message, err := channel.RecvMessage()
		if err != nil {
			elapsed := time.Since(killed)
			<-counted
			checkEnd(t, w, err, i, sent.Load(), killed.IsZero())
			_ = channel.Close()
			_ = command.Wait()
			return elapsed
		}
		if string(message.Bytes()) != string(numbered(i)) {
			t.Fatalf("message %d differs", i)
		}
		message.Release()
	}
}

func checkEnd(t *testing.T, w way, err error, received, sent uint64, isEarly bool) {
	t.Helper()
	var failure *Error
	if isEarly || !errors.As(err, &failure) || failure.ErrorCode() != 10 {
		t.Errorf("the direction of a killed process ends with %v", err)
	}
	if !w.isShared {
		sent = max(sent, 1) - 1 // a part of the last message may not have left the killed process
	}
	if received < sent {
		t.Errorf("%d messages of %d were received", received, sent)
	}
}

// The peer is killed, but a process that it had started keeps the peer's socket open. The pidfd of
// the peer shows its death all the same.
func TestDeathOfPeerWithHeirIsNoticed(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		if w.network == "tcp" {
			t.Skip("TCP brings no pidfd")
		}
		command, output, channel := startChild(t, listen(t, w), w, "heir")
		var pid [8]byte
		if _, err := io.ReadFull(output, pid[:]); err != nil {
			t.Fatal(err)
		}
		heir, err := os.FindProcess(int(binary.LittleEndian.Uint64(pid[:])))
		if err != nil {
			t.Fatal(err)
		}
		defer heir.Kill()
		if err := channel.Send([]byte("last")); err != nil {
			t.Fatal(err)
		}
		if message, err := channel.RecvMessage(); err != nil || string(message.Bytes()) != "last" {
			t.Fatal(err)
		}
		_ = command.Process.Signal(syscall.SIGKILL)
		if _, err := channel.RecvMessage(); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("receiving ends with %v", err)
		}
		for err = nil; err == nil; {
			err = channel.Send(make([]byte, 10_000))
		}
		if !errors.Is(err, syscall.EPIPE) {
			t.Errorf("sending ends with %v", err)
		}
		if err := heir.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("the heir has ended before: %v", err)
		}
	})
}

func TestSenderToKilledReceiverEnds(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		command, _, channel := startChild(t, listen(t, w), w, "echo")
		if err := channel.Send([]byte("one")); err != nil {
			t.Fatal(err)
		}
		if _, err := channel.RecvMessage(); err != nil {
			t.Fatal(err)
		}
		_ = command.Process.Signal(syscall.SIGKILL)
		var err error
		for err == nil {
			err = channel.Send(make([]byte, 100_000))
		}
		if !errors.Is(err, syscall.EPIPE) {
			t.Errorf("sending to a killed process ends with %v", err)
		}
		for err = nil; err == nil; {
			_, err = channel.RecvMessage()
		}
		if !errors.Is(err, syscall.EPIPE) {
			t.Errorf("receiving from a killed process ends with %v", err)
		}
	})
}

// stop stops a process with SIGSTOP, and waits until it has stopped.
func stop(t *testing.T, process *os.Process) {
	t.Helper()
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testTime); time.Now().Before(end); runtime.Gosched() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		// In this file of /proc, the state of the process follows the name of its program, which is
		// in parentheses.
		if _, rest, ok := strings.Cut(string(stat), ") "); ok && rest[0] == 'T' {
			return
		}
	}
	t.Fatal("the process does not stop")
}

func TestStoppedPeerIsNotDead(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		command, _, channel := startChild(t, listen(t, w), w, "echo")
		stop(t, command.Process)
		for i := range uint64(20) {
			if err := channel.Send(numbered(i)); err != nil {
				t.Fatalf("sending to a stopped process: %v", err)
			}
		}
		if err := channel.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		// Echoes that the process had sent before it was stopped may come first.
		received := uint64(0)
		for {
			message, err := channel.RecvMessage()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil || string(message.Bytes()) != string(numbered(received)) {
				t.Fatalf("message %d: %v", received, err)
			}
			message.Release()
			received++
		}
		if err := command.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := channel.SetReadDeadline(time.Now().Add(testTime)); err != nil {
			t.Fatal(err)
		}
		for ; received < 20; received++ {
			message, err := channel.RecvMessage()
			if err != nil || string(message.Bytes()) != string(numbered(received)) {
				t.Fatalf("message %d: %v", received, err)
			}
			message.Release()
		}
	})
}

func TestThousandChannelsLeaveNothing(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		listener := listen(t, w)
		channels := 1000
		if raceEnabled {
			channels = 100
		}
		exchange := func() {
			dialed, accepted := connect(t, listener, w)
			reservation, err := dialed.Reserve(100_000)
			if err != nil {
				t.Fatal(err)
			}
			if err := reservation.Commit(100_000); err != nil {
				t.Fatal(err)
			}
			message, err := accepted.RecvMessage()
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(dialed.Close(), accepted.Close()); err != nil {
				t.Fatal(err)
			}
			message.Release()
		}
		exchange()
		before := resources(t)
		for range channels {
			exchange()
		}
		// The test waits, because goroutines that are ending, and closed TCP sockets that read and
		// drop bytes, go away by themselves.
		after := resources(t)
		for end := time.Now().Add(testTime); after.exceeds(before) && time.Now().Before(end); {
			runtime.Gosched()
			after = resources(t)
		}
		if after.exceeds(before) {
			t.Errorf("after %d channels there are %+v, before %+v", channels, after, before)
		}
	})
}

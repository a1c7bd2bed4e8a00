// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build linux

package partywall

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// programVariable is the environment variable with the path of the command `partywall` of the Rust
// implementation. Without the variable the tests of this file are skipped.
const programVariable = "PARTYWALL_PROGRAM"

func rustProgram(t *testing.T) string {
	t.Helper()
	program := os.Getenv(programVariable)
	if program == "" {
		t.Skipf("%s does not name the command partywall; `cargo build -p partywall-cli` makes it",
			programVariable)
	}
	return program
}

// start starts the Rust command in a process that ends with the test, and returns the process and
// its output.
func start(t *testing.T, arguments ...string) (*exec.Cmd, io.Reader) {
	t.Helper()
	command := exec.Command(rustProgram(t), arguments...)
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
	return command, output
}

// startServer starts the Rust echo server for the transport of w, and returns its address.
func startServer(t *testing.T, w way) (*exec.Cmd, string) {
	t.Helper()
	address := "tcp:127.0.0.1:0"
	if w.network == "unix" {
		address = "unix:" + filepath.Join(t.TempDir(), "rust")
	}
	command, output := start(t, "echo", "serve", "--listen", address)
	lines := bufio.NewReader(output)
	line, err := lines.ReadString('\n')
	at, isReady := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !isReady {
		t.Fatalf("the server says %q, %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return command, at
}

func dialServer(t *testing.T, address string, w way) *Channel {
	t.Helper()
	channel, err := DialChannel(testContext(t), address, &w.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = channel.Close() })
	if channel.Transport().IsShared != w.isShared {
		t.Fatalf("the transport is %v", channel.Transport())
	}
	if err := channel.SetDeadline(time.Now().Add(testTime)); err != nil {
		t.Fatal(err)
	}
	return channel
}

func TestRustServerEchoesEverySize(t *testing.T) {
	rustProgram(t)
	eachWay(t, func(t *testing.T, w way) {
		_, address := startServer(t, w)
		channel := dialServer(t, address, w)
		into := make([]byte, 8<<20)
		for round := range 2 {
			for _, size := range testSizes {
				sent := pattern(round, size)
				if err := channel.Send(sent); err != nil {
					t.Fatalf("sending %d bytes: %v", size, err)
				}
				n, err := channel.Recv(into)
				if err != nil || !bytes.Equal(into[:n], sent) {
					t.Fatalf("%d bytes came back as %d, %v", size, n, err)
				}
			}
		}
		// The Rust server answers the end of this side's direction by ending its own direction.
		if err := channel.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := channel.Recv(into); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestManyMessagesOverRustServer(t *testing.T) {
	rustProgram(t)
	count := 20_000
	if text := os.Getenv("PARTYWALL_TEST_MESSAGES"); text != "" {
		count, _ = strconv.Atoi(text)
	}
	eachWay(t, func(t *testing.T, w way) {
		_, address := startServer(t, w)
		channel := dialServer(t, address, w)
		if err := channel.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			for i := range count {
				if err := channel.Send(numbered(uint64(i))); err != nil {
					done <- err
					return
				}
			}
			done <- channel.CloseWrite()
		}()
		for i := range count {
			message, err := channel.RecvMessage()
			if err != nil || !bytes.Equal(message.Bytes(), numbered(uint64(i))) {
				t.Fatalf("message %d: %v", i, err)
			}
			message.Release()
		}
		if _, err := channel.RecvMessage(); err != io.EOF {
			t.Errorf("after the last message: %v", err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestRustClientIsEchoed(t *testing.T) {
	program := rustProgram(t)
	eachWay(t, func(t *testing.T, w way) {
		listener := listen(t, w)
		for _, size := range []int{1, 48, 1024, 1025, 16_369, 70_000, 1 << 20, 8 << 20} {
			count := min(2000, 20+(4<<20)/size)
			command := exec.Command(program, "echo", "run", "--connect",
				listener.Addr().String(), "--size", strconv.Itoa(size), "-n", strconv.Itoa(count))
			var output bytes.Buffer
			command.Stdout, command.Stderr = &output, &output
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			channel, err := listener.Accept(testContext(t))
			if err != nil {
				t.Fatalf("%v; the client says\n%s", err, output.String())
			}
			if channel.Transport().IsShared != w.isShared {
				t.Fatalf("the transport is %v", channel.Transport())
			}
			if err := channel.SetDeadline(time.Now().Add(testTime)); err != nil {
				t.Fatal(err)
			}
			if err := echo(channel); err != nil {
				t.Errorf("%d bytes: %v", size, err)
			}
			if err := channel.Close(); err != nil {
				t.Error(err)
			}
			if err := command.Wait(); err != nil {
				t.Errorf("%d bytes: the client ends with %v\n%s", size, err, output.String())
			}
		}
	})
}

// The Rust command reads the regions of this Go process from outside (SPEC 3.4).
func TestRustCommandInspectsChannel(t *testing.T) {
	program := rustProgram(t)
	w := way{"shared", "unix", Config{}, true}
	dialed, accepted := pair(t, w)
	for range 3 {
		if err := dialed.Send([]byte("message")); err != nil {
			t.Fatal(err)
		}
		if _, err := accepted.RecvMessage(); err != nil {
			t.Fatal(err)
		}
	}
	output, err := exec.Command(program, "inspect", strconv.Itoa(os.Getpid())).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, want := range []string{
		"connector of a channel at \"unix:", "acceptor of a channel at \"unix:", ": open,",
		"sent 3 messages, 21 bytes", fmt.Sprintf("process %d, program", os.Getpid()),
	} {
		if !strings.Contains(string(output), want) {
			t.Errorf("%q is missing in\n%s", want, output)
		}
	}
}

func TestRustServerIsKilled(t *testing.T) {
	rustProgram(t)
	eachWay(t, func(t *testing.T, w way) {
		for range 3 {
			command, address := startServer(t, w)
			channel := dialServer(t, address, w)
			if err := channel.Send([]byte("one")); err != nil {
				t.Fatal(err)
			}
			if _, err := channel.RecvMessage(); err != nil {
				t.Fatal(err)
			}
			_ = command.Process.Signal(syscall.SIGKILL)
			var failure *Error
			_, err := channel.RecvMessage()
			if !errors.As(err, &failure) || failure.ErrorCode() != 10 {
				t.Errorf("receiving from a killed server ends with %v", err)
			}
			for err = nil; err == nil; {
				err = channel.Send(make([]byte, 50_000))
			}
			if !errors.Is(err, syscall.EPIPE) {
				t.Errorf("sending to a killed server ends with %v", err)
			}
		}
	})
}

func TestRustServerIsStopped(t *testing.T) {
	rustProgram(t)
	eachWay(t, func(t *testing.T, w way) {
		command, address := startServer(t, w)
		channel := dialServer(t, address, w)
		stop(t, command.Process)
		for i := range uint64(10) {
			if err := channel.Send(numbered(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := channel.SetReadDeadline(time.Now().Add(30 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := channel.RecvMessage(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("receiving from a stopped server ends with %v", err)
		}
		if err := command.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := channel.SetReadDeadline(time.Now().Add(testTime)); err != nil {
			t.Fatal(err)
		}
		for i := range uint64(10) {
			message, err := channel.RecvMessage()
			if err != nil || !bytes.Equal(message.Bytes(), numbered(i)) {
				t.Fatalf("message %d: %v", i, err)
			}
			message.Release()
		}
	})
}

// When a Go server is killed, its Rust client reports that the peer has gone, and does not wait for
// ever.
func TestGoServerOfRustClientIsKilled(t *testing.T) {
	program := rustProgram(t)
	eachWay(t, func(t *testing.T, w way) {
		listener := listen(t, w)
		client := exec.Command(program, "echo", "run", "--connect", listener.Addr().String(),
			"-n", "100m")
		var output bytes.Buffer
		client.Stdout, client.Stderr = &output, &output
		if err := client.Start(); err != nil {
			t.Fatal(err)
		}
		channel, err := listener.Accept(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			message, err := channel.RecvMessage()
			if err != nil {
				t.Fatal(err)
			}
			if err := channel.Send(message.Bytes()); err != nil {
				t.Fatal(err)
			}
			message.Release()
		}
		// The connection ends without CLOSE_WRITE, as when a process is killed.
		channel.connection.Interrupt()
		channel.connection.Close()
		channel.closing.Do(func() {})
		var exit *exec.ExitError
		if err := client.Wait(); !errors.As(err, &exit) {
			t.Errorf("the client ends with %v\n%s", err, output.String())
		}
	})
}

// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// programVariable is the environment variable that names the command `partywall` of the Rust
// implementation. Without it the tests that need the command are skipped.
const programVariable = "PARTYWALL_PROGRAM"

// testTime is the longest time that a test waits for another process.
const testTime = 60 * time.Second

func rustProgram(t *testing.T) string {
	t.Helper()
	program := os.Getenv(programVariable)
	if program == "" {
		t.Skipf("%s does not name the command partywall", programVariable)
	}
	return program
}

// addresses returns an unused address of each kind of transport at which an echo server can listen.
func addresses(t *testing.T) []string {
	directory := t.TempDir()
	return []string{
		"unix:" + filepath.Join(directory, "s"), "tcp:127.0.0.1:0",
		"plain:unix:" + filepath.Join(directory, "p"), "plain:tcp:127.0.0.1:0",
	}
}

// endpointsOf reads the output of a server until count lines have named the endpoints at which the
// server listens, and returns these endpoints.
func endpointsOf(t *testing.T, output io.Reader, count int) []string {
	t.Helper()
	lines := bufio.NewScanner(output)
	var found []string
	for range count {
		if !lines.Scan() {
			t.Fatalf("the server ends after %v: %v", found, lines.Err())
		}
		at, ok := strings.CutPrefix(lines.Text(), "listening on ")
		if !ok {
			t.Fatalf("the server says %q", lines.Text())
		}
		found = append(found, at)
	}
	go func() { _, _ = io.Copy(io.Discard, output) }()
	return found
}

func startServer(t *testing.T) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	read, write := io.Pipe()
	ended := make(chan int)
	listened := addresses(t)
	go func() {
		ended <- command(ctx, append([]string{"serve"}, listened...), write, os.Stderr)
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("the server ends with %d", code)
		}
	})
	return endpointsOf(t, read, len(listened))
}

func mustCompare(t *testing.T, endpoints []string) {
	t.Helper()
	var output, errorOutput bytes.Buffer
	arguments := append([]string{"run", "-n", "50", "-sizes", "1,64,70000"}, endpoints...)
	if code := command(context.Background(), arguments, &output, &errorOutput); code != 0 {
		t.Fatalf("run ends with %d\n%s", code, errorOutput.String())
	}
	rows := strings.Split(strings.TrimSpace(output.String()), "\n")[2:]
	if len(rows) != 3*len(endpoints) {
		t.Fatalf("%d rows, want %d\n%s", len(rows), 3*len(endpoints), output.String())
	}
	for i, row := range rows {
		carried := "plain lines"
		switch at := endpoints[i%len(endpoints)]; {
		case strings.HasPrefix(at, "unix:"):
			carried = "shared memory"
		case strings.HasPrefix(at, "tcp:"):
			carried = "socket ("
		}
		isTCP := strings.HasPrefix(endpoints[i%len(endpoints)], "plain:tcp:")
		if !strings.Contains(row, carried) || !strings.Contains(row, endpoints[i%len(endpoints)]) ||
			!ratio.MatchString(row) || isTCP && !strings.HasSuffix(strings.TrimSpace(row), " 1.00") {
			t.Errorf("row %d: %s", i, row)
		}
	}
}

var ratio = regexp.MustCompile(` \d+\.\d\d\s*$`)

func TestGoClientWithGoServer(t *testing.T) { mustCompare(t, startServer(t)) }

func TestGoClientWithRustServer(t *testing.T) {
	listened := addresses(t)
	arguments := append([]string{"echo", "serve", "--listen"}, listened...)
	server := exec.Command(rustProgram(t), arguments...)
	server.Stderr = os.Stderr
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(testTime, func() { _ = server.Process.Kill() })
	t.Cleanup(func() {
		timer.Stop()
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	mustCompare(t, endpointsOf(t, output, len(listened)))
}

func TestRustClientWithGoServer(t *testing.T) {
	program := rustProgram(t)
	endpoints := startServer(t)
	for _, size := range []string{"1", "64", "70000"} {
		ctx, cancel := context.WithTimeout(context.Background(), testTime)
		arguments := append([]string{"echo", "run", "-n", "50", "--size", size, "--connect"},
			endpoints...)
		output, err := exec.CommandContext(ctx, program, arguments...).CombinedOutput()
		cancel()
		if err != nil || strings.Count(string(output), "50 echoes, all verified") != len(endpoints) {
			t.Errorf("%s bytes: %v\n%s", size, err, output)
		}
	}
}

// When a server sends other bytes back, or none, the subcommand run fails.
func TestOtherServersAreNoticed(t *testing.T) {
	for name, c := range map[string]struct{ answer, timeout, want string }{
		"other bytes": {"other bytes than those\n", testTime.String(), "is this an echo server?"},
		"no answer":   {"", "20ms", "no echo for"},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				conn, err := listener.Accept()
				if err == nil {
					_, _ = io.WriteString(conn, c.answer)
					_, _ = io.Copy(io.Discard, conn)
					_ = conn.Close()
				}
			}()
			var errorOutput bytes.Buffer
			code := command(context.Background(), []string{
				"run", "-sizes", "8", "-timeout", c.timeout, "plain:tcp:" + listener.Addr().String(),
			}, io.Discard, &errorOutput)
			if code != 1 || !strings.Contains(errorOutput.String(), c.want) {
				t.Errorf("code %d, %s", code, errorOutput.String())
			}
		})
	}
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	for _, arguments := range [][]string{
		{}, {"sing"}, {"run"}, {"serve"}, {"run", "-n", "0", "unix:@a"}, {"run", "udp:1"},
		{"run", "-sizes", "x", "unix:@a"}, {"run", "-wait", "long", "unix:@a"},
		{"compare", "unix:@a"},
	} {
		if code := command(context.Background(), arguments, io.Discard, io.Discard); code != 2 {
			t.Errorf("%q: code %d", arguments, code)
		}
	}
	code := command(context.Background(), []string{"serve", "plain:tcp:192.0.2.1:1"},
		io.Discard, io.Discard)
	if code != 1 {
		t.Errorf("lines for other hosts: code %d", code)
	}
}

// The subcommand compare starts this test program as its server.
func TestCompareStartsItsServer(t *testing.T) {
	program := filepath.Join(t.TempDir(), "partywall-echo")
	if output, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	defer cancel()
	output, err := exec.CommandContext(ctx, program, "compare", "-n", "20", "-sizes", "64").CombinedOutput()
	if err != nil || !strings.Contains(string(output), "shared memory") ||
		strings.Count(string(output), "plain lines") != 2 {
		t.Errorf("%v\n%s", err, output)
	}
}

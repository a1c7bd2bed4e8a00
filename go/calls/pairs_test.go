// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build linux

package calls

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Environment variables with which `cargo xtask go` controls the tests of pairs of processes.
const (
	// rustPeerVariable is the environment variable with the path of the program to which
	// crates/extras/examples/calls_peer is compiled. Without the variable only pairs of two Go
	// processes are tested.
	rustPeerVariable = "PARTYWALL_RUST_CALLS"
	// fullVariable is the environment variable that makes the tests run in their long form, as
	// `cargo xtask go --full` does.
	fullVariable = "PARTYWALL_TEST_FULL"
	// figuresVariable is the environment variable that names a file, to which tests append the rows
	// of a table.
	figuresVariable = "PARTYWALL_TEST_FIGURES"
)

// rustPrefix is the beginning of the name of each of the two implementations in Rust, such as
// Rust-tokio.
const rustPrefix = "Rust-"

const (
	generous  = 4096 // limits of a server that refuses no call
	tight     = 4    // limits of a server that refuses calls
	killCalls = 10   // calls that a server runs when it, or its client, is killed
)

// A pairing names the implementations of the client and of the server, and the transport between
// them. There are two implementations in Rust: on tokio, and a blocking one.
type pairing struct {
	client, server string
	way            way
}

type peerProcess struct {
	*exec.Cmd
	name   string
	lines  *bufio.Scanner
	errors *strings.Builder // read after the end
}

// start starts the process of one end of a pair. The process ends at the latest when the test does.
func (p pairing) start(t *testing.T, task, address string, number int) *peerProcess {
	t.Helper()
	arguments := fmt.Sprint(task, " ", address, " ", p.way.name, " ", number)
	language := p.client
	if task == "serve" {
		language = p.server
	}
	command := exec.Command(os.Args[0])
	if form, isRust := strings.CutPrefix(language, rustPrefix); isRust {
		command = exec.Command(os.Getenv(rustPeerVariable), strings.Fields(form+" "+arguments)...)
	}
	command.Env = append(os.Environ(), peerVariable+"="+arguments)
	process := &peerProcess{
		Cmd: command, name: language + " " + task, errors: &strings.Builder{},
	}
	command.Stderr = process.errors
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(peerTime, func() { _ = command.Process.Kill() })
	t.Cleanup(func() {
		process.kill()
		timer.Stop()
	})
	process.lines = bufio.NewScanner(output)
	return process
}

// startBoth starts a server that runs at most limit handlers, and a client that performs the task.
func (p pairing) startBoth(t *testing.T, limit int, task string, number int) (client, server *peerProcess) {
	t.Helper()
	server = p.start(t, "serve", p.way.address(t), limit)
	address, isReady := strings.CutPrefix(server.line(t), "ready ")
	if !isReady {
		server.fail(t, "is not ready")
	}
	return p.start(t, task, address, number), server
}

func (p *peerProcess) line(t *testing.T) string {
	t.Helper()
	if !p.lines.Scan() {
		p.fail(t, "says no more")
	}
	return p.lines.Text()
}

func (p *peerProcess) mustSay(t *testing.T, want string) {
	t.Helper()
	if line := p.line(t); line != want {
		p.fail(t, fmt.Sprintf("says %q, want %q", line, want))
	}
}

func (p *peerProcess) fail(t *testing.T, what string) {
	t.Helper()
	p.kill()
	t.Fatalf("%s %s\n%s", p.name, what, p.errors)
}

func (p *peerProcess) kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

func (p *peerProcess) mustEnd(t *testing.T) {
	t.Helper()
	for p.lines.Scan() {
	}
	if err := p.Wait(); err != nil {
		t.Fatalf("%s ends with %v\n%s", p.name, err, p.errors)
	}
}

// mustServe waits until the server process has served its stream, and fails the test unless the
// stream ended with this code. It returns how many handlers have begun to wait until their call is
// given up, and how many of them have ended.
func (p *peerProcess) mustServe(t *testing.T, code int) (begun, ended int) {
	t.Helper()
	for {
		switch line := p.line(t); line {
		case "begun":
			begun++
		case "ended":
			ended++
		case fmt.Sprint("served ", code):
			return begun, ended
		default:
			p.fail(t, fmt.Sprintf("says %q, want served %d", line, code))
		}
	}
}

// Each pair of a client and a server makes every kind of call over each transport. Either process
// is killed while calls are under way: each call fails at once, and each handler ends.
func TestPairs(t *testing.T) {
	calls, kills := 300, 1
	if os.Getenv(fullVariable) != "" {
		calls, kills = 100_000, 100
	}
	for _, names := range [][2]string{
		{"Go", "Go"}, {"Go", "Rust-tokio"}, {"Go", "Rust-blocking"}, {"Rust-tokio", "Go"},
		{"Rust-blocking", "Go"},
	} {
		for _, w := range ways() {
			p := pairing{names[0], names[1], w}
			t.Run(names[0]+"-"+names[1]+"/"+w.name, func(t *testing.T) {
				if names != [2]string{"Go", "Go"} && os.Getenv(rustPeerVariable) == "" {
					t.Skip(rustPeerVariable + " does not name the example calls_peer of the Rust crate")
				}
				p.call(t, calls)
				p.exceed(t)
				for range kills {
					p.killServer(t)
					p.killClient(t)
				}
				p.publish(t, calls, 2*kills)
			})
		}
	}
}

func (p pairing) call(t *testing.T, count int) {
	t.Helper()
	client, server := p.startBoth(t, generous, "call", count)
	client.mustSay(t, fmt.Sprint("called ", count))
	client.mustEnd(t)
	if begun, ended := server.mustServe(t, 0); begun < 3 || ended != begun {
		t.Errorf("%d handlers that wait begin, and %d end", begun, ended)
	}
	server.mustEnd(t)
}

func (p pairing) exceed(t *testing.T) {
	t.Helper()
	client, server := p.startBoth(t, tight, "busy", tight)
	client.mustSay(t, fmt.Sprint("refused ", tight))
	client.mustEnd(t)
	server.mustServe(t, 0)
	server.mustEnd(t)
}

// killServer kills the server while calls wait for their answers, and checks that each call of the
// client fails.
func (p pairing) killServer(t *testing.T) {
	t.Helper()
	client, server := p.startBoth(t, generous, "lost", killCalls)
	client.mustSay(t, fmt.Sprint("begun ", killCalls))
	server.kill()
	client.mustSay(t, fmt.Sprint("lost ", killCalls, " 10"))
	client.mustEnd(t)
}

// killClient kills the client while its calls wait for their answers, and checks that the handler
// of each of them ends at the server.
func (p pairing) killClient(t *testing.T) {
	t.Helper()
	client, server := p.startBoth(t, generous, "lost", killCalls)
	client.mustSay(t, fmt.Sprint("begun ", killCalls))
	client.kill()
	if begun, ended := server.mustServe(t, 10); begun != killCalls || ended != killCalls {
		t.Errorf("%d handlers begin, and %d end; want %d", begun, ended, killCalls)
	}
	server.mustEnd(t)
}

// publish appends a row with the numbers of calls and kills to the file that [figuresVariable]
// names. Without the variable it does nothing.
func (p pairing) publish(t *testing.T, calls, kills int) {
	t.Helper()
	line := fmt.Sprintf("%-20s %-7s %9d calls, each kind of result, %d kills of either process\n",
		p.client+" → "+p.server, p.way.name, calls, kills)
	t.Log(line)
	path := os.Getenv(figuresVariable)
	if path == "" {
		return
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(line); err != nil {
		t.Fatal(err)
	}
}

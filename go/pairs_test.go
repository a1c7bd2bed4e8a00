// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build linux

package partywall

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Environment variables with which `cargo xtask go` controls the tests of pairs of processes.
const (
	// rustPeerVariable is the environment variable with the path of the program to which
	// crates/testkit/examples/peer.rs is compiled. Without the variable only pairs of two Go
	// processes are tested.
	rustPeerVariable = "PARTYWALL_RUST_PEER"
	// fullVariable is the environment variable that makes the tests run in their long form, as
	// `cargo xtask go --full` does.
	fullVariable = "PARTYWALL_TEST_FULL"
	// figuresVariable is the environment variable that names a file, to which tests append the rows
	// of a table.
	figuresVariable = "PARTYWALL_TEST_FIGURES"
)

const (
	// pipeBytes is the size in bytes of the pipe from a process to the test, and also of the buffer
	// with which the test reads the pipe.
	pipeBytes = 4096
	// betweenStops is the number of messages from one stop of a process to the next. The process
	// writes a count of 8 bytes for each message. So many counts do not fit into the pipe and the
	// buffer, so the process waits until the test reads them.
	betweenStops = 3 * pipeBytes / 8
)

// An amount is the number of messages, streams, kills and connections of one pair over one
// transport.
type amount struct {
	sizes, messages, streams, kills, streamKills, stops, connections int
}

func amounts() amount {
	if os.Getenv(fullVariable) != "" {
		return amount{
			sizes: 300, messages: 1_000_000, streams: 199, kills: 400, streamKills: 200, stops: 20,
			connections: 1000,
		}
	}
	a := amount{
		sizes: 4, messages: 20_000, streams: 20, kills: 4, streamKills: 2, stops: 2, connections: 30,
	}
	if raceEnabled {
		a.messages /= 10
	}
	return a
}

// A pairing names the implementations of both ends, Go or Rust, and the transport between them.
type pairing struct {
	dialer, listener string
	way              way
}

// eachPairing runs a test for each pair of implementations, with at least one in Go, over each
// transport.
func eachPairing(t *testing.T, test func(*testing.T, pairing)) {
	for _, names := range [][2]string{{"Go", "Go"}, {"Go", "Rust"}, {"Rust", "Go"}} {
		for _, w := range ways() {
			if w.name != "shared" && w.name != "unix" && w.name != "tcp" {
				continue
			}
			p := pairing{names[0], names[1], w}
			t.Run(names[0]+"-"+names[1]+"/"+w.name, func(t *testing.T) {
				if names != [2]string{"Go", "Go"} && os.Getenv(rustPeerVariable) == "" {
					t.Skip(rustPeerVariable + " does not name the program peer of the Rust crate testkit")
				}
				test(t, p)
			})
		}
	}
}

// A peerProcess is the process at one end of a pair.
type peerProcess struct {
	*exec.Cmd
	name   string
	input  io.Writer
	output *bufio.Reader
	errors *strings.Builder // read after wait
	timer  *time.Timer      // kills the process, so that no test hangs
}

// start starts the process at one end of a pair. The process ends at the latest when the test does.
func (p pairing) start(t *testing.T, role, task, address string, extra any) *peerProcess {
	t.Helper()
	arguments := fmt.Sprint(role, " ", task, " ", address, " ", p.way.name, " ", extra)
	language := p.dialer
	if role == "listen" {
		language = p.listener
	}
	command := exec.Command(os.Args[0])
	if language == "Rust" {
		command = exec.Command(os.Getenv(rustPeerVariable), strings.Fields(arguments)...)
	}
	command.Env = append(os.Environ(), peerVariable+"="+arguments)
	process := &peerProcess{Cmd: command, name: language + " " + role + " " + task}
	process.errors = &strings.Builder{}
	command.Stderr = process.errors
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	process.input = input
	process.output = bufio.NewReader(output)
	shrink(t, output.(*os.File))
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	process.timer = time.AfterFunc(10*testTime, func() { _ = command.Process.Kill() })
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		process.timer.Stop()
	})
	return process
}

// shrink makes the buffer of a pipe as small as possible. It then holds fewer counts than a process
// writes from one of its stops to the next.
func shrink(t *testing.T, pipe *os.File) {
	t.Helper()
	raw, err := pipe.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failure error
	err = raw.Control(func(fd uintptr) {
		_, failure = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeBytes)
	})
	if err != nil || failure != nil {
		t.Fatal(err, failure)
	}
}

// startBoth starts the processes at both ends of a pair, each with its task.
func (p pairing) startBoth(
	t *testing.T, dialing string, extra any, listening string, listeningExtra any,
) (dialer, listener *peerProcess) {
	t.Helper()
	listener = p.start(t, "listen", listening, testAddress(t, p.way), listeningExtra)
	return p.start(t, "dial", dialing, listener.ready(t), extra), listener
}

// ready waits until the process listens, and returns its address.
func (p *peerProcess) ready(t *testing.T) string {
	t.Helper()
	line, err := p.output.ReadString('\n')
	address, isReady := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if err != nil || !isReady {
		_ = p.Process.Kill()
		_ = p.Wait()
		t.Fatalf("%s says %q, %v\n%s", p.name, line, err, p.errors)
	}
	return address
}

// mustEnd waits for the end of the process, and fails the test unless it ends with this code. The
// caller has read all its output before.
func (p *peerProcess) mustEnd(t *testing.T, code int) {
	t.Helper()
	_, _ = io.Copy(io.Discard, p.output)
	_ = p.Wait()
	if found := p.ProcessState.ExitCode(); found != code {
		t.Errorf("%s ends with code %d, want %d\n%s", p.name, found, code, p.errors)
	}
}

// A counter reads the counts that a process writes after each message.
type counter struct {
	count   atomic.Uint64
	changed chan struct{} // has an element after a change
	ended   chan struct{}
}

func (p *peerProcess) follow() *counter {
	c := &counter{changed: make(chan struct{}, 1), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		count := make([]byte, 8)
		for {
			if _, err := io.ReadFull(p.output, count); err != nil {
				return
			}
			c.count.Store(binary.LittleEndian.Uint64(count))
			select {
			case c.changed <- struct{}{}:
			default:
			}
		}
	}()
	return c
}

// reach waits until the process has written at least this count of the messages that it has
// exchanged.
func (c *counter) reach(t *testing.T, count uint64) {
	t.Helper()
	for c.count.Load() < count {
		select {
		case <-c.changed:
		case <-c.ended:
			if c.count.Load() < count {
				t.Fatalf("the process ends after %d, before %d", c.count.Load(), count)
			}
		}
	}
}

// received reads the last line of a receiving process. The line states how many messages came, and
// the number of the error that ended the receiving.
func (p *peerProcess) received(t *testing.T) (count uint64, code int) {
	t.Helper()
	line, err := p.output.ReadString('\n')
	if _, scanErr := fmt.Sscanf(line, "received %d %d", &count, &code); scanErr != nil {
		_ = p.Process.Kill()
		_ = p.Wait()
		t.Fatalf("%s says %q, %v\n%s", p.name, line, err, p.errors)
	}
	return count, code
}

// sizesUpTo returns sizes of messages up to 4 MiB: each power of two and its neighbours, and
// further sizes that a seed chooses. If count is small, it returns only four sizes.
func sizesUpTo(count int) []int {
	if count < 10 {
		return []int{0, 1025, 65_537, 4 << 20}[:count]
	}
	sizes := []int{0, 1, 2}
	for size := 4; size <= 4<<20; size *= 2 {
		sizes = append(sizes, size-1, size, min(size+1, 4<<20))
	}
	random := rand.New(rand.NewPCG(22, uint64(count)))
	for len(sizes) < count {
		sizes = append(sizes, int(math.Exp2(22*random.Float64())))
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// A row is a row of the table of figures: what one pair has done over one transport.
type row struct {
	pairing
	done    amount
	slowest time.Duration // from a kill until the survivor had ended
}

func TestPairs(t *testing.T) {
	eachPairing(t, func(t *testing.T, p pairing) {
		r := &row{pairing: p}
		for _, step := range []struct {
			name string
			run  func(*testing.T, *row)
		}{
			{"sizes", checkSizes}, {"messages", checkMessages}, {"streams", checkStreams},
			{"kills", checkKills}, {"kills of streams", checkStreamKills}, {"stops", checkStops},
			{"connections", checkConnections},
		} {
			if !t.Run(step.name, func(t *testing.T) { step.run(t, r) }) {
				return
			}
		}
		r.publish(t)
	})
}

func (r *row) publish(t *testing.T) {
	d := r.done
	line := fmt.Sprintf("%-12s %-7s %6d %9d %8d %6d %11d %9.1f ms %6d %12d\n",
		r.dialer+" → "+r.listener, r.way.name, d.sizes, d.messages, d.streams, d.kills, d.streamKills,
		float64(r.slowest.Microseconds())/1000, d.stops, d.connections)
	t.Log(line)
	appendFigure(t, line)
}

// appendFigure appends a line to the file that [figuresVariable] names. Without the variable it
// does nothing.
func appendFigure(t *testing.T, line string) {
	t.Helper()
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

func checkSizes(t *testing.T, r *row) {
	sizes := sizesUpTo(amounts().sizes)
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(sizes), " ", ","), "[]")
	dialer, listener := r.startBoth(t, "sizes", list, "echo", 1)
	dialer.mustEnd(t, 0)
	listener.mustEnd(t, 0)
	r.done.sizes = len(sizes)
}

func checkMessages(t *testing.T, r *row) {
	count := amounts().messages
	for _, sends := range []string{"dial", "listen"} {
		var sender, receiver *peerProcess
		if sends == "dial" {
			sender, receiver = r.startBoth(t, "send", count, "receive", seldom)
		} else {
			receiver, sender = r.startBoth(t, "receive", seldom, "send", count)
		}
		if received, code := receiver.received(t); received != uint64(count) || code != 0 {
			t.Errorf("%s: %d messages of %d are received, end %d", receiver.name, received, count, code)
		}
		sender.mustEnd(t, 0)
		receiver.mustEnd(t, 0)
		r.done.messages += count
	}
}

func checkStreams(t *testing.T, r *row) {
	count := amounts().streams
	dialer, listener := r.startBoth(t, "streams", count, "serve", 0)
	dialer.mustEnd(t, 0)
	listener.mustEnd(t, 0)
	r.done.streams = count
}

// checkKills kills the sender or the receiver of messages after a random number of messages. Either
// of the two may be the dialer or the listener.
func checkKills(t *testing.T, r *row) {
	for i := range amounts().kills {
		kill := 1 + rand.Uint64N(2000)
		var sender, receiver *peerProcess
		if i%2 == 0 {
			sender, receiver = r.startBoth(t, "flood", 0, "receive", often)
		} else {
			receiver, sender = r.startBoth(t, "receive", often, "flood", 0)
		}
		if i/2%2 == 0 {
			r.killSender(t, sender, receiver, kill)
		} else {
			r.killReceiver(t, sender, receiver, kill)
		}
		if t.Failed() {
			return
		}
		r.done.kills++
	}
}

// killSender kills the sender. It checks that the receiver gets everything that was sent, in order
// and whole, and then the error that its peer has gone.
func (r *row) killSender(t *testing.T, sender, receiver *peerProcess, kill uint64) {
	t.Helper()
	counted := sender.follow()
	counted.reach(t, kill)
	_ = sender.Process.Kill()
	killed := time.Now()
	received, code := receiver.received(t)
	r.slowest = max(r.slowest, time.Since(killed))
	<-counted.ended
	sent := counted.count.Load()
	if !r.way.isShared {
		sent-- // the rest of the last message may be in the killed process
	}
	if received < sent || code != 10 {
		t.Errorf("%s: %d messages of %d are received, end %d, want 10", receiver.name, received, sent, code)
	}
	receiver.mustEnd(t, 0)
}

// killReceiver kills the receiver, and checks that the sender gets the error that its peer has
// gone.
func (r *row) killReceiver(t *testing.T, sender, receiver *peerProcess, kill uint64) {
	t.Helper()
	counted := sender.follow()
	counted.reach(t, kill)
	_ = receiver.Process.Kill()
	killed := time.Now()
	<-counted.ended
	r.slowest = max(r.slowest, time.Since(killed))
	sender.mustEnd(t, 10)
}

// checkStreamKills kills a process that sends on several streams at once. Each stream must end as
// disconnected, after whole messages in order. Over shared memory these must include each message
// whose Send had returned (SPEC 7.2).
func checkStreamKills(t *testing.T, r *row) {
	for i := range amounts().streamKills {
		var sender, receiver *peerProcess
		if i%2 == 0 {
			sender, receiver = r.startBoth(t, "flood-streams", senderStreams, "receive-streams", senderStreams)
		} else {
			receiver, sender = r.startBoth(t, "receive-streams", senderStreams, "flood-streams", senderStreams)
		}
		sent := sender.killAfter(t, rand.IntN(2000))
		killed := time.Now()
		for index, count := range sent {
			received, code := receiver.received(t)
			if r.way.isShared && received < count || code != 10 {
				t.Errorf("%s: %d messages of %d are received on stream %d, end %d, want 10",
					receiver.name, received, count, index, code)
			}
		}
		r.slowest = max(r.slowest, time.Since(killed))
		receiver.mustEnd(t, 0)
		if t.Failed() {
			return
		}
		r.done.streamKills++
	}
}

// killAfter kills a process that sends on streams, once it has sent as many messages as the
// argument more says, after the receiver has accepted each stream. It returns how many messages
// were sent on each stream.
func (p *peerProcess) killAfter(t *testing.T, more int) (sent [senderStreams]uint64) {
	t.Helper()
	report := make([]byte, 8)
	isKilled := false
	for {
		if _, err := io.ReadFull(p.output, report); err != nil {
			if !isKilled {
				_ = p.Process.Kill()
				_ = p.Wait()
				t.Fatalf("%s ends after %v messages\n%s", p.name, sent, p.errors)
			}
			return sent
		}
		word := binary.LittleEndian.Uint64(report)
		sent[word>>48] = word & (1<<48 - 1)
		if slices.Min(sent[:]) < beyondWindow {
			continue
		}
		if more--; more < 0 && !isKilled {
			isKilled = true
			_ = p.Process.Kill()
		}
	}
}

// beyondWindow is a number of messages whose bytes exceed the window of a stream. So a sender that
// has sent this many knows that the peer has accepted and read the stream.
const beyondWindow = 500

// checkStops stops the listener or the dialer with SIGSTOP while they exchange messages, and later
// continues it. The peer must not take the stopped process for a dead one.
func checkStops(t *testing.T, r *row) {
	stops := amounts().stops
	dialer, listener := r.startBoth(t, "ping", (stops+1)*betweenStops, "echo", 1)
	dialer.mustCount(t, betweenStops)
	for i := range stops {
		stopped := listener
		if i%2 == 1 {
			stopped = dialer
		}
		stop(t, stopped.Process)
		counted := make(chan struct{})
		go func() {
			defer close(counted)
			dialer.mustCount(t, betweenStops)
		}()
		select {
		case <-counted:
			t.Errorf("the exchange goes on while %s is stopped", stopped.name)
		case <-time.After(20 * time.Millisecond):
		}
		if err := stopped.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		<-counted
		r.done.stops++
	}
	dialer.mustEnd(t, 0)
	listener.mustEnd(t, 0)
}

// mustCount reads and drops the next counts that the peer process writes, one for each message that
// it has exchanged. It fails the test if the process ends before.
func (p *peerProcess) mustCount(t *testing.T, counts int) {
	read, err := io.CopyN(io.Discard, p.output, int64(counts)*8)
	if err != nil {
		t.Errorf("%s ends after %d messages more", p.name, read/8)
	}
}

// checkConnections opens and closes many channels, from this process or to it, so that its own
// goroutines are counted as well. At the end, the listener's process must have as many descriptors,
// mappings and goroutines as after the first channel.
func checkConnections(t *testing.T, r *row) {
	count := amounts().connections
	one := func() {}
	other := r.otherOfConnections(t, count, &one)
	one()
	before, othersBefore := resources(t), resourcesOf(t, other)
	for range count {
		one()
	}
	for end := time.Now().Add(testTime); ; runtime.Gosched() {
		after, others := resources(t), resourcesOf(t, other)
		if !after.exceeds(before) && !others.exceeds(othersBefore) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after %d channels there are %+v, before %+v; in the other process %+v, before %+v",
				count, after, before, others, othersBefore)
		}
	}
	one()
	other.mustEnd(t, 0)
	r.done.connections = count
}

// otherOfConnections starts the process at the other end of the channels that the test opens and
// closes. It sets *one to the function that makes and ends one such channel.
func (r *row) otherOfConnections(t *testing.T, count int, one *func()) *peerProcess {
	if r.listener == "Rust" || r.dialer == r.listener {
		other := r.start(t, "listen", "echo", testAddress(t, r.way), count+2)
		address := other.ready(t)
		*one = func() {
			channel := mustHave(t)(DialChannel(testContext(t), address, &r.way.config))
			sent := func(uint64) []byte { return pattern(1, 100_000) }
			if err := exchange(channel, 1, false, sent); err != nil {
				t.Fatal(err)
			}
			if err := channel.Close(); err != nil {
				t.Fatal(err)
			}
		}
		return other
	}
	listener := listen(t, r.way)
	other := r.start(t, "dial", "connect", listener.Addr().String(), count+2)
	*one = func() {
		if _, err := other.input.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
		channel := mustHave(t)(listener.Accept(testContext(t)))
		if err := echo(channel); err != nil {
			t.Fatal(err)
		}
		if err := channel.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return other
}

// mustHave returns a function that takes the result of making a channel, and returns the channel or
// fails the test.
func mustHave(t *testing.T) func(*Channel, error) *Channel {
	return func(channel *Channel, err error) *Channel {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return channel
	}
}

// resourcesOf returns the numbers of descriptors and mappings that another process has.
func resourcesOf(t *testing.T, p *peerProcess) (u used) {
	t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(p.Process.Pid))
	descriptors, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile(filepath.Join(proc, "maps"))
	if err != nil {
		t.Fatal(err)
	}
	u.descriptors, u.mappings = len(descriptors), strings.Count(string(maps), "memfd:")
	return u
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Environment variables of the second process of a test, which sends on streams until it is killed.
const (
	senderAddressVariable = "PARTYWALL_TEST_SENDER"
	senderWayVariable     = "PARTYWALL_TEST_SENDER_WAY"
	// sessionKillsVariable is the environment variable that raises the number of kills for each
	// transport.
	sessionKillsVariable = "PARTYWALL_TEST_SESSION_KILLS"
)

// senderStreams is the number of streams on which the second process of a test sends at the same
// time.
const senderStreams = 4

// When the peer is killed, each of its streams ends as disconnected, after whole messages in order.
// Over shared memory these include each message whose Send had returned (SPEC 7.2).
func TestKilledSenderOfStreams(t *testing.T) {
	if address := os.Getenv(senderAddressVariable); address != "" {
		sendUntilKilled(address)
	}
	kills := 5
	if text := os.Getenv(sessionKillsVariable); text != "" {
		number, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		kills = number
	}
	eachWay(t, func(t *testing.T, w way) {
		listener, err := ListenSession(testAddress(t, w), &w.config)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		for i := range kills {
			killStreamSender(t, w, listener, int64(1+i*97%1500))
		}
	})
}

// A peer that is stopped by SIGSTOP is not taken for a dead one: once it continues, it answers, and
// no message is lost.
func TestStoppedPeerOfSession(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		listener, err := ListenSession(testAddress(t, w), &w.config)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		command, _, session := startSender(t, w, listener)
		defer session.Close()
		defer func() {
			_ = command.Process.Kill()
			_ = command.Wait()
		}()
		ctx := testContext(t)
		stream, err := session.AcceptStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		for number := range uint64(300) {
			if number == 100 {
				if err := command.Process.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				var status syscall.WaitStatus
				pid, err := syscall.Wait4(command.Process.Pid, &status, syscall.WUNTRACED, nil)
				if err != nil || !status.Stopped() {
					t.Fatal(pid, err, status)
				}
				stopped, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				err = session.Ping(stopped)
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a stopped peer answers with %v", err)
				}
				if err := command.Process.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				if err := session.Ping(ctx); err != nil {
					t.Errorf("the peer that went on: %v", err)
				}
			}
			m, err := stream.RecvMessage()
			if err != nil {
				t.Fatal(err)
			}
			checkSent(t, m.Bytes(), number)
			m.Release()
		}
	})
}

// startSender starts the second process of a test, and accepts the session that it opens.
func startSender(
	t *testing.T, w way, listener *SessionListener,
) (*exec.Cmd, io.Reader, *Session) {
	t.Helper()
	command := exec.Command(os.Args[0], "-test.run=^TestKilledSenderOfStreams$")
	command.Env = append(os.Environ(), senderAddressVariable+"="+listener.Addr().String(),
		senderWayVariable+"="+w.name)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	session, err := listener.Accept(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return command, output, session
}

// killStreamSender starts a process that sends on streams, and kills it after a number of messages.
func killStreamSender(t *testing.T, w way, listener *SessionListener, after int64) {
	t.Helper()
	command, output, session := startSender(t, w, listener)
	defer session.Close()
	ctx := testContext(t)
	var group sync.WaitGroup
	var total atomic.Int64
	var received [senderStreams]uint64
	var streams [senderStreams]*Stream
	for i := range streams {
		stream, err := session.AcceptStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		streams[i] = stream
	}
	for _, stream := range streams {
		group.Go(func() {
			count := &received[stream.Metadata()[0]]
			for {
				m, err := stream.RecvMessage()
				if err != nil {
					mustBe(t, err, 10, syscall.ECONNRESET)
					return
				}
				checkSent(t, m.Bytes(), *count)
				m.Release()
				*count++
				if total.Add(1) == after {
					_ = command.Process.Kill()
				}
			}
		})
	}
	sent := readSent(output)
	group.Wait()
	_ = command.Wait()
	for i, count := range received {
		if w.isShared && count < sent[i] {
			t.Errorf("stream %d: %d messages arrived, and Send had returned for %d", i, count, sent[i])
		}
	}
}

// readSent reads the output of the second process. It returns, for each stream, how many calls of
// Send have returned.
func readSent(output io.Reader) (sent [senderStreams]uint64) {
	reader := bufio.NewReader(output)
	for {
		i, err := reader.ReadByte()
		if err != nil {
			return sent
		}
		sent[i]++
	}
}

// checkSent checks a message of a stream: it has this number, and the length that follows from the
// number.
func checkSent(t *testing.T, message []byte, number uint64) {
	want := sentMessage(number)
	if !bytes.Equal(message, want) {
		t.Errorf("message %d has %d bytes, want %d", number, len(message), len(want))
	}
}

func sentMessage(number uint64) []byte {
	message := binary.LittleEndian.AppendUint64(nil, number)
	return append(message, bytes.Repeat([]byte{byte(number)}, int(number*number*31%20_000))...)
}

// sendUntilKilled is what the second process does: it sends on several streams at once. After each
// message it writes the index of the stream to its output.
func sendUntilKilled(address string) {
	var config Config
	for _, w := range ways() {
		if w.name == os.Getenv(senderWayVariable) {
			config = w.config
		}
	}
	session, err := DialSession(context.Background(), address, &config)
	if err != nil {
		os.Exit(1)
	}
	for i := range byte(senderStreams) {
		stream, err := session.OpenStream(context.Background(), []byte{i})
		if err != nil {
			os.Exit(1)
		}
		go func() {
			for number := uint64(0); ; number++ {
				if stream.Send(sentMessage(number)) != nil {
					os.Exit(1)
				}
				_, _ = os.Stdout.Write([]byte{i})
			}
		}()
	}
	<-session.Done()
	os.Exit(1)
}

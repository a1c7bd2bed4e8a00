// SPDX-License-Identifier: MIT OR Apache-2.0

// One end of a pair of programs in the matrix of languages, written in Go. The programs of all
// languages have the same command line and output, which conformance/matrix/README.md describes.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	partywall "partywall.test/go"
)

const (
	// answerBit is the bit of a seed that distinguishes an answer from the message that it answers.
	answerBit = 1 << 63
	// messageMax is the maximum length in bytes of a message that the server of the error tests
	// receives.
	messageMax = 65536
	// finished is the error number that says that the peer closed the session in good order (SPEC 17).
	finished = 9
	// step is the difference of two successive words of a pattern: a message's bytes are such words.
	// It and the factors that make the first word from the seed have the values of
	// crates/testkit/src/random.rs.
	step = 0x9e3779b97f4a7c15
)

var background = context.Background()

func main() {
	if err := perform(os.Args[1:]); err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
}

func perform(words []string) error {
	switch strings.Join(words[:min(2, len(words))], " ") {
	case "features":
		fmt.Println("channel session")
		return nil
	case "serve channel", "serve session", "serve errors":
		if len(words) != 5 {
			break
		}
		go endWithInput()
		switch words[1] {
		case "channel":
			return serveChannels(words[2], words[3])
		case "session":
			return serveSessions(words[2], words[3])
		}
		return serveErrors(words[2], words[3], words[4])
	case "run channel", "run session":
		if len(words) != 5 {
			break
		}
		sizes, err := numbers(words[4])
		if err != nil {
			return err
		}
		if words[1] == "channel" {
			return runChannel(words[2], words[3], sizes)
		}
		return runSession(words[2], words[3], sizes)
	case "run errors":
		if len(words) == 6 {
			return runErrors(words[2], words[3], words[4], words[5])
		}
	}
	return fmt.Errorf("the arguments are not those of the matrix: %q", words)
}

// endWithInput ends this server process when its standard input ends, which the harness closes.
func endWithInput() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func numbers(list string) ([]int, error) {
	var all []int
	for _, word := range strings.Split(list, ",") {
		number, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		all = append(all, number)
	}
	return all, nil
}

func config(transport string) *partywall.Config {
	switch transport {
	case "shared":
		return &partywall.Config{Transport: partywall.TransportSharedMemory}
	case "unix":
		return &partywall.Config{Transport: partywall.TransportSocket}
	}
	return &partywall.Config{}
}

func mix(word uint64) uint64 {
	word = (word ^ word>>30) * 0xbf58476d1ce4e5b9
	word = (word ^ word>>27) * 0x94d049bb133111eb
	return word ^ word>>31
}

// pattern returns the size bytes that a message with this seed carries, as
// crates/testkit/src/pattern.rs defines them.
func pattern(size int, seed uint64) []byte {
	whole := make([]byte, (size+7)/8*8)
	word := mix(seed)
	for at := 0; at < len(whole); at += 8 {
		binary.LittleEndian.PutUint64(whole[at:], word)
		word += step
	}
	return whole[:size]
}

// counters counts the messages that this end has received, and the sum of their bytes.
type counters struct {
	messages uint64
	bytes    int
}

// check checks that a received message has the bytes that its seed determines, and counts the
// message.
func (t *counters) check(message []byte, seed uint64) error {
	if !bytes.Equal(message, pattern(len(message), seed)) {
		return fmt.Errorf("message %x of %d bytes is wrong", seed, len(message))
	}
	t.messages++
	t.bytes += len(message)
	return nil
}

// checkAnswer checks that answer has size bytes and answers the message with this seed, and counts
// the answer.
func (t *counters) checkAnswer(answer *partywall.Message, seed uint64, size int) error {
	defer answer.Release()
	if answer.Len() != size {
		return fmt.Errorf("%d bytes answer %d", answer.Len(), size)
	}
	return t.check(answer.Bytes(), seed|answerBit)
}

func (t *counters) report(what string) { fmt.Println(what, t.messages, t.bytes) }

func serveChannels(transport, address string) error {
	listener, err := partywall.ListenChannel(address, config(transport))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		channel, err := listener.Accept(background)
		if err != nil {
			return err
		}
		var t counters
		if err := answerAll(channel, &t, 0); err != nil {
			return err
		}
		if err := channel.Close(); err != nil {
			return err
		}
		t.report("served")
	}
}

// A pipe sends and receives messages: it is a channel, or a stream of a session.
type pipe interface {
	Send(message []byte) error
	RecvMessage() (*partywall.Message, error)
}

// answerAll checks and answers the messages of a channel or stream until the peer ends its
// direction. The argument first is the seed of the first message.
func answerAll(p pipe, t *counters, first uint64) error {
	for {
		message, err := p.RecvMessage()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		seed, size := first|t.messages, message.Len()
		err = t.check(message.Bytes(), seed)
		message.Release()
		if err == nil {
			err = p.Send(pattern(size, seed|answerBit))
		}
		if err != nil {
			return err
		}
	}
}

func runChannel(transport, address string, sizes []int) error {
	channel, err := partywall.DialChannel(background, address, config(transport))
	if err != nil {
		return err
	}
	var t counters
	for number, size := range sizes {
		if err := channel.Send(pattern(size, uint64(number))); err != nil {
			return err
		}
		answer, err := channel.RecvMessage()
		if err != nil {
			return err
		}
		if err := t.checkAnswer(answer, uint64(number), size); err != nil {
			return err
		}
	}
	if err := channel.Close(); err != nil {
		return err
	}
	t.report("done")
	return nil
}

func serveSessions(transport, address string) error {
	listener, err := partywall.ListenSession(address, config(transport))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		session, err := listener.Accept(background)
		if err != nil {
			return err
		}
		if err := serveSession(session); err != nil {
			return err
		}
	}
}

func serveSession(session *partywall.Session) error {
	var (
		mutex   sync.Mutex
		total   counters
		failure error
		group   sync.WaitGroup
	)
	for {
		stream, err := session.AcceptStream(background)
		if isFinished(err) {
			break
		}
		if err != nil {
			return err
		}
		group.Go(func() {
			t, err := serveStream(stream)
			mutex.Lock()
			defer mutex.Unlock()
			total.messages += t.messages
			total.bytes += t.bytes
			failure = errors.Join(failure, err)
		})
	}
	group.Wait()
	if failure != nil {
		return failure
	}
	total.report("served")
	return nil
}

// isFinished reports whether err says that the peer has closed the session in good order.
func isFinished(err error) bool {
	var end *partywall.Error
	return errors.As(err, &end) && end.ErrorCode() == finished
}

func serveStream(stream *partywall.Stream) (counters, error) {
	var t counters
	if len(stream.Metadata()) != 1 {
		return t, errors.New("a stream without metadata")
	}
	err := answerAll(stream, &t, uint64(stream.Metadata()[0])<<32)
	return t, errors.Join(err, stream.CloseWrite())
}

// runSession sends messages of the given sizes on two streams, alternating, and checks the answers.
// Each stream was opened with its own number, 0 or 1, as its one byte of metadata.
func runSession(transport, address string, sizes []int) error {
	session, err := partywall.DialSession(background, address, config(transport))
	if err != nil {
		return err
	}
	var streams []*partywall.Stream
	for number := range 2 {
		stream, err := session.OpenStream(background, []byte{byte(number)})
		if err != nil {
			return err
		}
		streams = append(streams, stream)
	}
	var t counters
	for number, size := range sizes {
		for first, stream := range streams {
			if err := stream.Send(pattern(size, uint64(first)<<32|uint64(number))); err != nil {
				return err
			}
		}
		for first, stream := range streams {
			answer, err := stream.RecvMessage()
			if err != nil {
				return err
			}
			if err := t.checkAnswer(answer, uint64(first)<<32|uint64(number), size); err != nil {
				return err
			}
		}
	}
	for _, stream := range streams {
		if err := stream.CloseWrite(); err != nil {
			return err
		}
		if _, err := stream.RecvMessage(); err != io.EOF {
			return fmt.Errorf("no end, but %v", err)
		}
	}
	if err := session.Close(); err != nil {
		return err
	}
	t.report("done")
	return nil
}

// admitOnly returns a rule for a listener or client that admits only peers of one user.
func admitOnly(user string) func(partywall.Peer) error {
	return func(p partywall.Peer) error {
		if p.HasCredentials && strconv.FormatUint(uint64(p.UID), 10) == user {
			return nil
		}
		return errors.New("another user is admitted")
	}
}

// serveErrors is the server of the error tests: it accepts channels and keeps them open without
// sending. A second listener admits only the given user.
func serveErrors(transport, address, user string) error {
	settings := config(transport)
	settings.MessageMax = messageMax
	listener, err := partywall.ListenChannel(address, settings)
	if err != nil {
		return err
	}
	if transport != "tcp" {
		strict := *settings
		strict.Admit = admitOnly(user)
		other, err := partywall.ListenChannel(address+".strict", &strict)
		if err != nil {
			return err
		}
		go func() { _, _ = other.Accept(background) }()
	}
	fmt.Println("ready")
	var channels []*partywall.Channel
	for {
		channel, err := listener.Accept(background)
		if err != nil {
			return err
		}
		channels = append(channels, channel)
	}
}

func runErrors(transport, address, nobody, user string) error {
	dial := func(cause, address string, settings *partywall.Config) {
		_, err := partywall.DialChannel(background, address, settings)
		printCause(cause, err)
	}
	plain, odd, strict := config(transport), config(transport), config(transport)
	odd.RingBytes = 5000
	strict.Admit = admitOnly(user)
	dial("address-syntax", "nowhere", plain)
	dial("no-listener", nobody, plain)
	dial("setting", address, odd)
	if transport != "tcp" {
		dial("no-socket", nobody+".none", plain)
		dial("not-admitted", address, strict)
		dial("refused", address+".strict", plain)
	}
	channel, err := partywall.DialChannel(background, address, plain)
	if err != nil {
		return err
	}
	if err := channel.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		return err
	}
	_, err = channel.RecvMessage()
	printCause("deadline", err)
	printCause("too-long", channel.Send(make([]byte, messageMax+1)))
	if err := channel.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	fmt.Println("connected")
	_, err = channel.RecvMessage()
	printCause("gone", err)
	return nil
}

// printCause prints the name of a cause and the number of the error: 0 if err is nil, -1 if the
// error has no number.
func printCause(name string, err error) {
	number := 0
	var failure *partywall.Error
	switch {
	case errors.As(err, &failure):
		number = int(failure.ErrorCode())
	case err != nil:
		number = -1
	}
	fmt.Println("cause", name, number)
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

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
)

// peerVariable is the environment variable that makes a process of this test program one end of a
// channel or a session. Its value is a list of arguments, as for the Rust program
// crates/testkit/examples/peer.rs, whose tasks are the same.
const peerVariable = "PARTYWALL_TEST_PEER"

const (
	// streamMessages is the number of messages that each stream exchanges.
	streamMessages = 20
	// often is the distance between two long messages in tests that count messages one by one:
	// every fifth message is long.
	often = 5
	// seldom is the distance between two long messages in tests that send a million messages: every
	// thousandth message is long.
	seldom = 1000
)

// A testPeer is one end of a channel or a session, in a process that tests start, stop and kill.
type testPeer struct {
	listens              bool
	task, address, extra string
	config               Config
}

// runPeer performs the task that the arguments name, and returns the exit code of the process.
func runPeer(arguments string) int {
	fields := append(strings.Fields(arguments), "")
	p := &testPeer{
		listens: fields[0] == "listen", task: fields[1], address: fields[2], extra: fields[4],
	}
	for _, w := range ways() {
		if w.name == fields[3] {
			p.config = w.config
		}
	}
	err := p.run()
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "peer: %s: %v\n", arguments, err)
	var failure *Error
	if errors.As(err, &failure) && failure.ErrorCode() <= 255 {
		return int(failure.ErrorCode())
	}
	return 1
}

func (p *testPeer) run() error {
	switch p.task {
	case "streams", "serve", "flood-streams", "receive-streams":
		session, err := p.session()
		if err != nil {
			return err
		}
		defer session.Close()
		return p.performOnStreams(session)
	}
	channels, err := p.channels()
	if err != nil {
		return err
	}
	count := uint64(1)
	if p.task == "echo" || p.task == "connect" {
		count = p.number()
	}
	for range count {
		if p.task == "connect" {
			if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
				return err
			}
		}
		channel, err := channels()
		if err != nil {
			return err
		}
		if err := p.perform(channel); err != nil {
			return err
		}
		if err := channel.Close(); err != nil {
			return err
		}
	}
	return nil
}

// channels returns a function that makes one new channel with each call.
func (p *testPeer) channels() (func() (*Channel, error), error) {
	if !p.listens {
		return func() (*Channel, error) {
			return DialChannel(context.Background(), p.address, &p.config)
		}, nil
	}
	listener, err := ListenChannel(p.address, &p.config)
	if err != nil {
		return nil, err
	}
	fmt.Println("ready", listener.Addr())
	return func() (*Channel, error) { return listener.Accept(context.Background()) }, nil
}

func (p *testPeer) session() (*Session, error) {
	if !p.listens {
		return DialSession(context.Background(), p.address, &p.config)
	}
	listener, err := ListenSession(p.address, &p.config)
	if err != nil {
		return nil, err
	}
	fmt.Println("ready", listener.Addr())
	return listener.Accept(context.Background())
}

func (p *testPeer) perform(channel *Channel) error {
	switch p.task {
	case "echo":
		return echo(channel)
	case "sizes":
		sizes := strings.Split(p.extra, ",")
		return exchange(channel, uint64(len(sizes)), false, func(i uint64) []byte {
			size, _ := strconv.Atoi(sizes[i])
			return pattern(int(i), size)
		})
	case "ping":
		return exchange(channel, p.number(), true, func(i uint64) []byte {
			return numberedEvery(i, often)
		})
	case "connect":
		return exchange(channel, 1, false, func(uint64) []byte { return pattern(1, 100_000) })
	case "flood":
		return sendNumbered(channel, 1<<63, often, true)
	case "send":
		return sendNumbered(channel, p.number(), seldom, false)
	case "receive":
		return receiveNumbered(channel, p.number())
	}
	return fmt.Errorf("no task %q", p.task)
}

func (p *testPeer) performOnStreams(session *Session) error {
	switch p.task {
	case "serve":
		return serveStreams(session)
	case "flood-streams":
		return floodStreams(session, p.number())
	case "receive-streams":
		return receiveStreams(session, p.number())
	}
	return openStreams(session, p.number())
}

func (p *testPeer) number() uint64 {
	number, err := strconv.ParseUint(p.extra, 10, 64)
	if err != nil {
		panic(err)
	}
	return number
}

// exchange sends messages on a channel, checks that each comes back, and ends both directions. If
// reports is true, it writes the number of echoes to the standard output after each.
func exchange(channel *Channel, count uint64, reports bool, message func(uint64) []byte) error {
	for i := range count {
		sent := message(i)
		if err := channel.Send(sent); err != nil {
			return err
		}
		answer, err := channel.RecvMessage()
		if err != nil {
			return err
		}
		if !bytes.Equal(answer.Bytes(), sent) {
			return fmt.Errorf("message %d came back changed", i)
		}
		answer.Release()
		if reports {
			if err := report(i + 1); err != nil {
				return err
			}
		}
	}
	if err := channel.CloseWrite(); err != nil {
		return err
	}
	if _, err := channel.RecvMessage(); err != io.EOF {
		return fmt.Errorf("instead of the end: %w", err)
	}
	return nil
}

func sendNumbered(channel *Channel, count, every uint64, reports bool) error {
	for i := range count {
		if err := channel.Send(numberedEvery(i, every)); err != nil {
			return err
		}
		if reports {
			if err := report(i + 1); err != nil {
				return err
			}
		}
	}
	if err := channel.CloseWrite(); err != nil {
		return err
	}
	// The peer ends its direction once it has received all messages of this side.
	if _, err := channel.RecvMessage(); err != io.EOF {
		return fmt.Errorf("instead of the end: %w", err)
	}
	return nil
}

// receiveNumbered receives numbered messages and checks them, until they end. One of each `every`
// messages is long.
func receiveNumbered(channel *Channel, every uint64) error {
	for count := uint64(0); ; count++ {
		message, err := channel.RecvMessage()
		var failure *Error
		switch {
		case err == io.EOF:
			fmt.Println("received", count, 0)
			return nil
		case errors.As(err, &failure):
			fmt.Println("received", count, uint32(failure.ErrorCode()))
			return nil
		case err != nil:
			return err
		case !bytes.Equal(message.Bytes(), numberedEvery(count, every)):
			return fmt.Errorf("message %d is another", count)
		}
		message.Release()
	}
}

// openStreams opens count streams, and then exchanges messages on all of them at the same time.
func openStreams(session *Session, count uint64) error {
	ctx := context.Background()
	var group sync.WaitGroup
	failures := make([]error, count)
	streams := make([]*Stream, count)
	for i := range streams {
		stream, err := session.OpenStream(ctx, []byte("peer"))
		if err != nil {
			return err
		}
		streams[i] = stream
	}
	for i, stream := range streams {
		group.Go(func() { failures[i] = exchangeOnStream(stream, uint64(i)) })
	}
	group.Wait()
	return errors.Join(failures...)
}

func exchangeOnStream(stream *Stream, index uint64) error {
	for number := range uint64(streamMessages) {
		sent := numberedEvery(index*streamMessages+number, often)
		if err := stream.Send(sent); err != nil {
			return err
		}
		answer, err := stream.RecvMessage()
		if err != nil {
			return err
		}
		if !bytes.Equal(answer.Bytes(), sent) {
			return fmt.Errorf("stream %d: message %d came back changed", index, number)
		}
		answer.Release()
	}
	if err := stream.CloseWrite(); err != nil {
		return err
	}
	if _, err := stream.RecvMessage(); err != io.EOF {
		return fmt.Errorf("stream %d: instead of the end: %w", index, err)
	}
	return stream.Close()
}

// serveStreams accepts streams and sends back the messages of each, until the peer has closed the
// session.
func serveStreams(session *Session) error {
	var group sync.WaitGroup
	var mutex sync.Mutex
	var failures []error
	for {
		stream, err := session.AcceptStream(context.Background())
		if err != nil {
			break
		}
		group.Go(func() {
			if err := echoStream(stream); err != nil {
				mutex.Lock()
				defer mutex.Unlock()
				failures = append(failures, err)
			}
		})
	}
	group.Wait()
	return errors.Join(failures...)
}

func echoStream(stream *Stream) error {
	for {
		message, err := stream.RecvMessage()
		if err == io.EOF {
			return errors.Join(stream.CloseWrite(), stream.Close())
		}
		if err != nil {
			return err
		}
		err = stream.Send(message.Bytes())
		message.Release()
		if err != nil {
			return err
		}
	}
}

// floodStreams sends numbered messages on all streams at once, without end. After each message it
// writes one number: the index of the stream in the upper 16 bits, and below them how many messages
// were sent on the stream.
func floodStreams(session *Session, count uint64) error {
	failures := make(chan error, count)
	for index := range count {
		stream, err := session.OpenStream(context.Background(), []byte("peer"))
		if err != nil {
			return err
		}
		go func() {
			for number := uint64(0); ; number++ {
				err := stream.Send(numberedEvery(number, often))
				if err == nil {
					err = report(index<<48 | (number + 1))
				}
				if err != nil {
					failures <- err
					return
				}
			}
		}()
	}
	var last error
	for range count {
		last = <-failures
	}
	return last
}

// receiveStreams receives on all streams at once. It then prints how many messages came on each
// stream, and how the stream ended.
func receiveStreams(session *Session, count uint64) error {
	var group sync.WaitGroup
	lines, failures := make([]string, count), make([]error, count)
	for i := range count {
		stream, err := session.AcceptStream(context.Background())
		if err != nil {
			return err
		}
		group.Go(func() { lines[i], failures[i] = receiveOnStream(stream) })
	}
	group.Wait()
	fmt.Print(strings.Join(lines, ""))
	return errors.Join(failures...)
}

func receiveOnStream(stream *Stream) (string, error) {
	for count := uint64(0); ; count++ {
		message, err := stream.RecvMessage()
		var failure *Error
		switch {
		case err == io.EOF:
			return fmt.Sprintln("received", count, 0), nil
		case errors.As(err, &failure):
			return fmt.Sprintln("received", count, uint32(failure.ErrorCode())), nil
		case err != nil:
			return "", err
		case !bytes.Equal(message.Bytes(), numberedEvery(count, often)):
			return "", fmt.Errorf("message %d is another", count)
		}
		message.Release()
	}
}

// report writes a count, in eight bytes, to the standard output.
func report(count uint64) error {
	_, err := os.Stdout.Write(binary.LittleEndian.AppendUint64(nil, count))
	return err
}

// numberedEvery returns message number i, which begins with its number. One of each `every`
// messages is long.
func numberedEvery(i, every uint64) []byte {
	size := 16 + int(i%100)
	if i%every == 0 {
		size = 3000 + int(i%50_000)
	}
	b := pattern(int(i), size)
	binary.LittleEndian.PutUint64(b, i)
	return b
}

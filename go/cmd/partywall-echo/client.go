// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	partywall "partywall.test/go"
)

// A question has the arguments of a measurement: the sizes and the number of the messages that are
// sent to each endpoint, and the longest wait for an echo.
type question struct {
	config  partywall.Config
	sizes   []int
	count   int
	timeout time.Duration
}

// run sends messages of each size to each endpoint, and writes a table of the times.
func run(arguments []string, output, errorOutput io.Writer) error {
	q, endpoints, err := parseQuestion("run", arguments, errorOutput)
	if err != nil {
		return err
	}
	if len(endpoints) == 0 {
		return fmt.Errorf("%w: run needs the address of a server", errUsage)
	}
	return q.ask(endpoints, output)
}

// compare starts a server that listens on each kind of transport, and then measures echoes over
// each of them.
func compare(arguments []string, output, errorOutput io.Writer) error {
	q, endpoints, err := parseQuestion("compare", arguments, errorOutput)
	if err != nil {
		return err
	}
	if len(endpoints) > 0 {
		return fmt.Errorf("%w: compare takes no address: it starts its own server", errUsage)
	}
	directory, err := os.MkdirTemp("", "partywall-echo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	server := exec.Command("/proc/self/exe", "serve", "unix:"+filepath.Join(directory, "shared"),
		"plain:unix:"+filepath.Join(directory, "plain"), "plain:tcp:127.0.0.1:0")
	server.Stderr = errorOutput
	lines, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	for range 3 {
		var at string
		if _, err := fmt.Fscanf(lines, "listening on %s\n", &at); err != nil {
			return fmt.Errorf("the server does not start: %w", err)
		}
		e, err := parseEndpoint(at)
		if err != nil {
			return err
		}
		endpoints = append(endpoints, e)
	}
	return q.ask(endpoints, output)
}

func parseQuestion(
	name string, arguments []string, errorOutput io.Writer,
) (*question, []endpoint, error) {
	q := &question{}
	flags := newFlags(name, &q.config, errorOutput)
	sizes := flags.String("sizes", "64,4096,65536", "sizes of the messages in bytes")
	flags.IntVar(&q.count, "n", 10_000, "messages of each size to each address")
	flags.DurationVar(&q.timeout, "timeout", timeoutDefault, "longest wait for an echo")
	endpoints, err := parse(flags, arguments)
	if err != nil {
		return nil, nil, err
	}
	if q.count < 1 || q.timeout <= 0 {
		return nil, nil, fmt.Errorf("%w: -n and -timeout are more than 0", errUsage)
	}
	for text := range strings.SplitSeq(*sizes, ",") {
		size, err := strconv.Atoi(text)
		if err != nil || size < 0 {
			return nil, nil, fmt.Errorf("%w: %q is no size", errUsage, text)
		}
		q.sizes = append(q.sizes, size)
	}
	return q, endpoints, nil
}

func (q *question) ask(endpoints []endpoint, output io.Writer) error {
	fmt.Fprintf(output, "%s, %d messages of each size, one at a time\n", runtime.Version(), q.count)
	t := &table{}
	for _, size := range q.sizes {
		for _, e := range endpoints {
			o, err := q.measure(e, size)
			if err != nil {
				return fmt.Errorf("%s: %w", e, err)
			}
			t.add(o)
		}
	}
	return t.write(output)
}

// measure sends the messages of one size to one endpoint, and checks each echo.
func (q *question) measure(e endpoint, size int) (*outcome, error) {
	c, err := q.connect(e, size)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	o := &outcome{endpoint: e, size: size, transport: c.transport()}
	var done atomic.Int64
	defer watch(c, &done, q.timeout)()
	payload := letters(size)
	for i := range q.count {
		number(payload, uint64(i))
		started := time.Now()
		if err := c.roundTrip(payload); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = fmt.Errorf("no echo for %v", q.timeout)
			}
			return nil, err
		}
		o.add(time.Since(started))
		done.Add(1)
	}
	return o, nil
}

// watch makes the calls on a connection fail if done, the count of finished messages, has not grown
// for the time timeout. The returned function ends the watching.
func watch(c connection, done *atomic.Int64, timeout time.Duration) func() {
	ended := make(chan struct{})
	go func() {
		ticker := time.NewTicker(timeout)
		defer ticker.Stop()
		for last := int64(-1); ; {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			now := done.Load()
			if now == last {
				_ = c.SetDeadline(time.Unix(1, 0))
			}
			last = now
		}
	}()
	return func() { close(ended) }
}

// A connection is a client's connection to an echo server, over a channel or a plain socket.
type connection interface {
	io.Closer
	SetDeadline(time.Time) error
	transport() string
	roundTrip(payload []byte) error
}

func (q *question) connect(e endpoint, size int) (connection, error) {
	if e.isPlain {
		conn, err := e.dial()
		return &plainConnection{conn, make([]byte, 0, size+1), make([]byte, size+1)}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), q.timeout)
	defer cancel()
	channel, err := partywall.DialChannel(ctx, e.address, &q.config)
	return &channelConnection{channel, make([]byte, size)}, err
}

type channelConnection struct {
	*partywall.Channel
	into []byte
}

func (c *channelConnection) transport() string { return c.Transport().String() }

func (c *channelConnection) roundTrip(payload []byte) error {
	if err := c.Send(payload); err != nil {
		return err
	}
	n, err := c.Recv(c.into)
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	return verify(c.into[:n], payload)
}

type plainConnection struct {
	netConn
	line, into []byte
}

type netConn interface {
	io.ReadWriteCloser
	SetDeadline(time.Time) error
}

func (*plainConnection) transport() string { return "plain lines" }

func (c *plainConnection) roundTrip(payload []byte) error {
	c.line = append(append(c.line[:0], payload...), '\n')
	if _, err := c.Write(c.line); err != nil {
		return err
	}
	if _, err := io.ReadFull(c.netConn, c.into); err != nil {
		return err
	}
	return verify(c.into, c.line)
}

func verify(found, sent []byte) error {
	if bytes.Equal(found, sent) {
		return nil
	}
	return fmt.Errorf("the echo is not what was sent (%d bytes, not %d): is this an echo server?",
		len(found), len(sent))
}

// letters returns a payload of size bytes without a newline, because a newline ends a plain
// message.
func letters(size int) []byte {
	payload := make([]byte, size)
	for i := range payload {
		payload[i] = byte('a' + i%26)
	}
	return payload
}

// number writes the number n of a message into the first bytes of its payload, so that the echo of
// another message is not taken for that of this one.
func number(payload []byte, n uint64) {
	width := min(len(payload), 16)
	for i := range width {
		payload[width-1-i] = "0123456789abcdef"[n>>(4*i)&15]
	}
}

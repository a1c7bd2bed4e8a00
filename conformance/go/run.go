// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	shmipc "github.com/cloudwego/shmipc-go"
)

// client connects to a server, and drives the traffic that the options of the command line
// describe.
type client struct {
	options  *options
	report   *report
	sessions *shmipc.SessionManager
	ended    atomic.Bool
	leases   leases
}

func run(o *options) int {
	c := &client{options: o, report: newReport("client")}
	c.leases.lanes = make([]uint64, o.streams)
	config := shmipc.DefaultSessionManagerConfig()
	config.Config = o.config()
	config.Monitor = c.report
	config.Network, config.Address, config.SessionNum = o.network, o.address, o.sessions
	sessions, err := shmipc.NewSessionManager(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, "connecting:", err)
		removeLeftovers(o.prefix)
		return 1
	}
	c.sessions = sessions
	fmt.Println("connected")
	if o.untilStdin {
		go func() {
			scanner := bufio.NewScanner(os.Stdin)
			for scanner.Scan() {
				if scanner.Text() == "renew" {
					c.leases.renew()
				}
			}
			c.ended.Store(true)
		}()
	}
	c.drive()
	_ = sessions.Close()
	time.Sleep(closingTime)
	removeLeftovers(o.prefix)
	return c.report.print()
}

func (c *client) drive() {
	// shmipc-go sends a message over the socket if shared memory has no room for it. From then on
	// it opens no new stream on that session, so all streams are opened before the first message.
	var first []*shmipc.Stream
	for index := 0; index <= c.options.streams; index++ {
		stream, err := c.sessions.GetStream()
		if err != nil {
			c.report.fail(fmt.Errorf("opening stream %d: %w", index, err))
			return
		}
		first = append(first, stream)
	}
	teller := first[c.options.streams]
	defer teller.Close()
	var all sync.WaitGroup
	for index, stream := range first[:c.options.streams] {
		all.Add(1)
		go func() {
			defer all.Done()
			c.report.with(func(r *report) { r.Streams++ })
			if err := c.lane(index, stream, c.options.seed+uint64(index)<<32); err != nil {
				c.report.fail(fmt.Errorf("stream %d: %w", index, err))
			}
			c.leases.begin(index, math.MaxUint64)
		}()
	}
	all.Wait()
	if c.options.mode == "upload" {
		c.awaitUploads(teller)
	}
}

// lane runs one of the concurrent users of the client's stream pool. In mode echo it repeats three
// steps: it takes a stream, sends requests, and puts the stream back.
func (c *client) lane(index int, stream *shmipc.Stream, seed uint64) error {
	p := &plan{seed: seed, sizes: c.options.planSizes(), requests: c.options.count}
	switch c.options.mode {
	case "upload":
		p.mode = modeUpload
		return c.upload(stream, p)
	case "download":
		p.mode = modeDownload
		return c.download(stream, p)
	}
	for round := uint64(0); round == 0 || c.options.untilStdin && !c.ended.Load(); round++ {
		for done := uint64(0); done < c.options.count; done += c.options.lease {
			if stream == nil {
				var err error
				request := c.leases.requests()
				if stream, err = c.sessions.GetStream(); err != nil {
					return fmt.Errorf("getting a stream: %w", err)
				}
				c.leases.begin(index, request)
			}
			p.requests = min(c.options.lease, c.options.count-done)
			p.seed = seed + round*c.options.count + done
			if err := c.echo(stream, p); err != nil {
				return err
			}
			if c.options.putBack {
				c.sessions.PutBack(stream)
				stream = nil
			}
		}
	}
	if stream != nil {
		return stream.Close()
	}
	return nil
}

// leases notes which lanes, the concurrent users of the stream pool, have leased a stream since the
// harness sent the request "renew". Once all have, it prints "renewed": no stream from before the
// request is in use.
type leases struct {
	mutex              sync.Mutex
	requested, printed uint64
	// For each lane, the number of "renew" requests that had arrived when it leased its stream. It
	// is the largest uint64 once the lane has ended, so that "renewed" does not wait for it.
	lanes []uint64
}

func (l *leases) requests() uint64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.requested
}

func (l *leases) renew() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.requested++
	l.printIfRenewed()
}

// begin notes that the lane leased a stream when `request` requests of "renew" had arrived.
func (l *leases) begin(lane int, request uint64) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.lanes[lane] = request
	l.printIfRenewed()
}

func (l *leases) printIfRenewed() {
	for _, request := range l.lanes {
		if request < l.requested {
			return
		}
	}
	if l.printed < l.requested {
		l.printed = l.requested
		fmt.Println("renewed")
	}
}

// echo announces requests to the server, sends them and checks the answers. It sends up to
// --pipeline requests before it waits for the answer of the first.
func (c *client) echo(stream *shmipc.Stream, p *plan) error {
	if err := send(stream, p.encode()); err != nil {
		return err
	}
	if c.options.pipeline <= 1 {
		var buffer []byte
		for index := uint64(0); index < p.requests; index++ {
			buffer = requestBytes(p, index, buffer)
			if err := send(stream, buffer); err != nil {
				return fmt.Errorf("request %d: %w", index, err)
			}
			if _, err := readRequest(stream, p, index, c.piece(p.size(index)), nil); err != nil {
				return fmt.Errorf("answer: %w", err)
			}
			c.count(len(buffer))
		}
		return nil
	}
	room := make(chan struct{}, c.options.pipeline)
	sent := make(chan error, 1)
	stop := make(chan struct{})
	go func() { sent <- sendAhead(stream, p, room, stop) }()
	err := c.receive(stream, p, room)
	close(stop)
	if sendError := <-sent; sendError != nil {
		return sendError
	}
	return err
}

func sendAhead(stream *shmipc.Stream, p *plan, room chan<- struct{}, stop <-chan struct{}) error {
	var buffer []byte
	for index := uint64(0); index < p.requests; index++ {
		select {
		case room <- struct{}{}:
		case <-stop:
			return nil
		}
		buffer = requestBytes(p, index, buffer)
		if err := send(stream, buffer); err != nil {
			return fmt.Errorf("request %d, sent ahead: %w", index, err)
		}
	}
	return nil
}

// receive reads the server's answers to all requests that p announces, and checks every byte. With
// --ignore-boundaries it reads pieces of the sizes in oddPieces, so one piece may hold the end of
// an answer and the whole next answers.
func (c *client) receive(stream *shmipc.Stream, p *plan, room <-chan struct{}) error {
	if !c.options.ignoreBoundaries {
		for index := uint64(0); index < p.requests; index++ {
			if _, err := readRequest(stream, p, index, pieceBytes, nil); err != nil {
				return fmt.Errorf("answer: %w", err)
			}
			c.count(p.size(index))
			<-room
		}
		return nil
	}
	index, inRequest, expected := uint64(0), 0, newPattern(p.seed, 0)
	for turn := 0; index < p.requests; turn++ {
		// A read that has to block asks for no more than the rest of this answer: ReadBytes waits
		// until it has all the bytes that it is asked for, and the server may send nothing after
		// this answer.
		want := oddPieces[turn%len(oddPieces)]
		if want > stream.BufferReader().Len() {
			want = min(want, p.size(index)-inRequest)
		}
		got, err := stream.BufferReader().ReadBytes(want)
		if err != nil {
			return fmt.Errorf("answer %d after %d bytes: %w", index, inRequest, err)
		}
		for len(got) > 0 {
			part := got[:min(len(got), p.size(index)-inRequest)]
			if wrong := expected.check(part); wrong >= 0 {
				return fmt.Errorf("answer %d: byte %d is wrong", index, inRequest+wrong)
			}
			inRequest += len(part)
			got = got[len(part):]
			if inRequest == p.size(index) {
				c.count(inRequest)
				<-room
				index, inRequest = index+1, 0
				expected = newPattern(p.seed, index)
			}
		}
		stream.BufferReader().ReleasePreviousRead()
	}
	return nil
}

func (c *client) piece(size int) int {
	if c.options.ignoreBoundaries {
		return oddPieces[size%len(oddPieces)]
	}
	return size
}

func (c *client) count(size int) {
	c.report.with(func(r *report) { r.Requests++; r.Bytes += uint64(size) })
}

// upload announces requests to the server, sends all of them, and closes the stream right after the
// last, without waiting for the server.
func (c *client) upload(stream *shmipc.Stream, p *plan) error {
	if err := send(stream, p.encode()); err != nil {
		return err
	}
	var buffer []byte
	for index := uint64(0); index < p.requests; index++ {
		buffer = requestBytes(p, index, buffer)
		if err := send(stream, buffer); err != nil {
			return fmt.Errorf("upload %d: %w", index, err)
		}
		c.count(len(buffer))
	}
	return stream.Close()
}

// awaitUploads asks the server for its counts of uploads until they show that each upload has
// ended, whole or cut short. An upload that was cut short is reported as a fault.
func (c *client) awaitUploads(teller *shmipc.Stream) {
	ask := &plan{mode: modeReport, sizes: []uint64{1}}
	for {
		if err := send(teller, ask.encode()); err != nil {
			c.report.fail(fmt.Errorf("asking: %w", err))
			return
		}
		answer, err := teller.BufferReader().ReadBytes(24)
		if err != nil {
			c.report.fail(fmt.Errorf("asking: %w", err))
			return
		}
		whole, cut := binary.BigEndian.Uint64(answer), binary.BigEndian.Uint64(answer[8:])
		teller.BufferReader().ReleasePreviousRead()
		if whole+cut >= uint64(c.options.streams) {
			c.report.with(func(r *report) { r.UploadsWhole, r.UploadsCut = whole, cut })
			if cut > 0 {
				c.report.fail(fmt.Errorf("%d uploads were cut short", cut))
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// download tells the server by p which requests to send, and expects all of them and then the end
// of the stream.
func (c *client) download(stream *shmipc.Stream, p *plan) error {
	defer stream.Close()
	if err := send(stream, p.encode()); err != nil {
		return err
	}
	for index := uint64(0); index < p.requests; index++ {
		if _, err := readRequest(stream, p, index, pieceBytes, nil); err != nil {
			return fmt.Errorf("download: %w", err)
		}
		c.count(p.size(index))
	}
	if _, err := stream.BufferReader().ReadByte(); !errors.Is(err, shmipc.ErrEndOfStream) {
		return fmt.Errorf("after the last byte: %v instead of the end of the stream", err)
	}
	return nil
}

// oddPieces are the sizes in bytes of the pieces in which answers are read: unrelated to the sizes
// of requests and slices, so that pieces end anywhere within both.
var oddPieces = []int{1, 7, 4093, 10007, 100003, 3, 65537, 333}

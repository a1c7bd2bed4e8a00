// SPDX-License-Identifier: MIT OR Apache-2.0

// The program channel-peer is one end of a channel, for tests against other implementations.
//
//	channel-peer serve ADDRESS    prints "ready ADDRESS", echoes every message of every channel
//	channel-peer run   ADDRESS    sends messages of each size, checks each byte that comes back
//
// The command run exits with code 0 only if every byte was right. The command serve ends at the end
// of its standard input. For each channel, a line of JSON is printed at the channel's end.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	partywall "partywall.test/go"
)

// A report is the line of JSON that the program prints when one channel has ended.
type report struct {
	Transport string  `json:"transport"`
	Trusted   bool    `json:"trusted"`
	Messages  uint64  `json:"messages"`
	Bytes     uint64  `json:"bytes"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	Error     string  `json:"error,omitempty"`
	Code      uint32  `json:"code,omitempty"`
}

type options struct {
	config  partywall.Config
	address string
	sizes   []int
	count   int
	one     bool
}

func main() {
	if len(os.Args) < 3 {
		usage("a subcommand and an address are missing")
	}
	o := parse(os.Args[2:])
	switch os.Args[1] {
	case "serve":
		os.Exit(serve(o))
	case "run":
		os.Exit(run(o))
	}
	usage("there is no subcommand " + os.Args[1])
}

func usage(why string) {
	fmt.Fprintln(os.Stderr, why+"\nusage: channel-peer serve|run [flags] ADDRESS")
	os.Exit(2)
}

func parse(arguments []string) *options {
	o := &options{}
	flags := flag.NewFlagSet("channel-peer", flag.ExitOnError)
	transport := flags.String("transport", "auto", "auto, shm or socket")
	trust := flags.String("trust", "auto", "auto or nobody")
	waits := flags.String("wait", "adaptive", "adaptive, spin or park")
	sizes := flags.String("sizes", "64", "sizes of the messages in bytes, in turn")
	flags.IntVar(&o.count, "count", 1, "how often each size is sent")
	flags.BoolVar(&o.one, "one", false, "the server ends after one channel")
	_ = flags.Parse(arguments)
	if flags.NArg() != 1 {
		usage("one address is needed")
	}
	o.address = flags.Arg(0)
	choose(&o.config.Transport, *transport, "auto", "shm", "socket")
	choose(&o.config.Wait, *waits, "adaptive", "spin", "park")
	if *trust == "nobody" {
		o.config.Trust = partywall.TrustNobody
	}
	for text := range strings.SplitSeq(*sizes, ",") {
		size, err := strconv.Atoi(text)
		if err != nil {
			usage("no size: " + text)
		}
		o.sizes = append(o.sizes, size)
	}
	return o
}

// choose sets the value of a flag to the index of text in names, which are in the order of the
// library's constants.
func choose[T ~uint8](value *T, text string, names ...string) {
	index := slices.Index(names, text)
	if index < 0 {
		usage(text + " is none of " + strings.Join(names, ", "))
	}
	*value = T(index)
}

// serve echoes the messages of all channels, each in a goroutine.
func serve(o *options) int {
	o.config.OnRefused = func(err error) { fmt.Fprintln(os.Stderr, "refused:", err) }
	listener, err := partywall.ListenChannel(o.address, &o.config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	fmt.Println("ready", listener.Addr())
	var channels sync.WaitGroup
	for {
		channel, err := listener.Accept(ctx)
		if err != nil {
			break
		}
		channels.Go(func() { serveOne(channel) })
		if o.one {
			break
		}
	}
	_ = listener.Close()
	channels.Wait()
	return 0
}

func serveOne(channel *partywall.Channel) {
	defer channel.Close()
	r := report{Transport: channel.Transport().String(), Trusted: channel.Peer().Trusted}
	r.end(echo(channel, &r))
	r.print()
}

func echo(channel *partywall.Channel, r *report) error {
	for {
		message, err := channel.RecvMessage()
		if err == io.EOF {
			return channel.CloseWrite()
		}
		if err != nil {
			return err
		}
		r.Messages++
		r.Bytes += uint64(message.Len())
		err = channel.Send(message.Bytes())
		message.Release()
		if err != nil {
			return err
		}
	}
}

// run opens a channel, sends a message of every size in each round, and checks that the same bytes
// come back.
func run(o *options) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	channel, err := partywall.DialChannel(ctx, o.address, &o.config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer channel.Close()
	r := report{Transport: channel.Transport().String(), Trusted: channel.Peer().Trusted}
	r.end(exchange(channel, o, &r))
	r.print()
	if r.Error != "" {
		return 1
	}
	return 0
}

func exchange(channel *partywall.Channel, o *options, r *report) error {
	into := make([]byte, slices.Max(o.sizes))
	times := make([]time.Duration, 0, o.count*len(o.sizes))
	for round := range o.count {
		for _, size := range o.sizes {
			sent := pattern(round, size)
			started := time.Now()
			if err := channel.Send(sent); err != nil {
				return err
			}
			n, err := channel.Recv(into)
			times = append(times, time.Since(started))
			if err != nil {
				return err
			}
			if !bytes.Equal(into[:n], sent) {
				return fmt.Errorf("%d bytes of round %d came back as %d others", size, round, n)
			}
			r.Messages++
			r.Bytes += uint64(n)
		}
	}
	slices.Sort(times)
	r.P50 = float64(times[len(times)/2].Nanoseconds()) / 1000
	r.P99 = float64(times[len(times)*99/100].Nanoseconds()) / 1000
	if err := channel.CloseWrite(); err != nil {
		return err
	}
	if _, err := channel.Recv(into); err != io.EOF {
		return fmt.Errorf("instead of the end: %w", err)
	}
	return nil
}

// pattern returns size bytes, the payload of the messages of a round; rounds have different bytes.
func pattern(round, size int) []byte {
	b := make([]byte, size)
	x := uint32(round)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

func (r *report) end(err error) {
	if err == nil {
		return
	}
	r.Error = err.Error()
	if failure, ok := err.(*partywall.Error); ok {
		r.Code = uint32(failure.ErrorCode())
	}
}

func (r *report) print() {
	line, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

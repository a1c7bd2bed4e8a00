// SPDX-License-Identifier: MIT OR Apache-2.0

// The program greeter is a server or a client that exchanges greetings, as in the examples of
// shmipc-go. The tests compile it twice: as it is, with an import of shmipc-go, and with
// partywallshmipc instead.
//
//	greeter server SOCKET
//	greeter client SOCKET memfd|file GREETINGS
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cloudwego/shmipc-go"
)

const (
	greeting = "client says hello, number %07d"
	answer   = "server says hello, number %07d"
	// beginTime is the longest time that both sides of a session take to begin it.
	beginTime = 20 * time.Second
)

func main() {
	var err error
	if os.Args[1] == "server" {
		err = serve(os.Args[2])
	} else {
		err = greet(os.Args[2], os.Args[3] == "memfd", os.Args[4])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type listenCallback struct{}

func (listenCallback) OnNewStream(s *shmipc.Stream) {
	if err := s.SetCallbacks(&streamCallbacks{s}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func (listenCallback) OnShutdown(string) {}

type streamCallbacks struct{ stream *shmipc.Stream }

func (c *streamCallbacks) OnData(reader shmipc.BufferReader) {
	b, err := reader.ReadBytes(len(fmt.Sprintf(greeting, 0)))
	if err != nil {
		return
	}
	number, err := strconv.Atoi(string(b[len(b)-7:]))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	reader.ReleasePreviousRead()
	if err := c.stream.BufferWriter().WriteString(fmt.Sprintf(answer, number)); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err := c.stream.Flush(false); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func (c *streamCallbacks) OnLocalClose() {}

func (c *streamCallbacks) OnRemoteClose() {
	if err := c.stream.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// serve serves greetings at the path of a socket until the standard input ends.
func serve(path string) error {
	config := shmipc.NewDefaultListenerConfig(path, "unix")
	config.InitializeTimeout = beginTime
	listener, err := shmipc.NewListener(listenCallback{}, config)
	if err != nil {
		return err
	}
	fmt.Println("listens")
	go func() {
		for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		}
		listener.Close()
	}()
	return listener.Run()
}

// greet sends greetings to the server, and compares the answers with what it expects.
func greet(path string, isMemfd bool, text string) error {
	count, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	config := shmipc.DefaultSessionManagerConfig()
	config.Network, config.Address, config.InitializeTimeout = "unix", path, beginTime
	config.ShareMemoryPathPrefix = "/dev/shm/partywall_test_" + strings.ReplaceAll(path, "/", "_")
	if isMemfd {
		config.MemMapType = shmipc.MemMapTypeMemFd
	}
	manager, err := shmipc.NewSessionManager(config)
	if err != nil {
		return err
	}
	defer manager.Close()
	for i := range count {
		stream, err := manager.GetStream()
		if err != nil {
			return err
		}
		if err := stream.BufferWriter().WriteString(fmt.Sprintf(greeting, i)); err != nil {
			return err
		}
		if err := stream.Flush(true); err != nil {
			return err
		}
		want := fmt.Sprintf(answer, i)
		got, err := stream.BufferReader().ReadBytes(len(want))
		if err != nil {
			return err
		}
		if string(got) != want {
			return fmt.Errorf("the server answers %q, not %q", got, want)
		}
		stream.BufferReader().ReleasePreviousRead()
		manager.PutBack(stream)
	}
	fmt.Println("greeted", count)
	return nil
}

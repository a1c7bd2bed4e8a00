// SPDX-License-Identifier: MIT OR Apache-2.0

// The client and the server of a measurement, written in Go. The programs of all languages have the
// same command line, which bench/languages/README.md describes.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	partywall "partywall.test/go"
)

// A carrier sends and receives the messages of a measurement, over a channel or a Unix socket. Both
// sides know the length of each message.
type carrier interface {
	send(message []byte) error
	recv(message []byte) error
}

type channel struct{ *partywall.Channel }

func (c channel) send(message []byte) error { return c.Send(message) }

func (c channel) recv(message []byte) error {
	_, err := c.Recv(message)
	return err
}

type socket struct{ net.Conn }

func (s socket) send(message []byte) error {
	_, err := s.Write(message)
	return err
}

func (s socket) recv(message []byte) error {
	_, err := io.ReadFull(s, message)
	return err
}

func main() {
	act := run
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "rate serve|run ADDRESS SOCKET")
		os.Exit(2)
	}
	if os.Args[1] == "serve" {
		act = serve
	}
	if err := act(os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "rate:", err)
		os.Exit(1)
	}
}

func serve(address, path string) error {
	channels, err := partywall.ListenChannel(address, nil)
	if err != nil {
		return err
	}
	sockets, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	first, err := channels.Accept(context.Background())
	if err != nil {
		return err
	}
	second, err := sockets.Accept()
	if err != nil {
		return err
	}
	ended := make(chan error)
	for _, c := range []carrier{channel{first}, socket{second}} {
		go func() { ended <- answer(c) }()
	}
	// The client closes the channel and the socket when it ends. So both of the server's goroutines
	// end as well, that of the channel and that of the socket.
	if err := <-ended; err != io.EOF {
		return err
	}
	return nil
}

// answer performs the server's part of each task that the client announces.
func answer(c carrier) error {
	command := make([]byte, 24)
	for {
		if err := c.recv(command); err != nil {
			return err
		}
		isWay := binary.LittleEndian.Uint64(command) == 1
		message := make([]byte, binary.LittleEndian.Uint64(command[8:]))
		for range binary.LittleEndian.Uint64(command[16:]) {
			err := c.recv(message)
			if err == nil && !isWay {
				err = c.send(message)
			}
			if err != nil {
				return err
			}
		}
		if isWay {
			if err := c.send(command[:8]); err != nil {
				return err
			}
		}
	}
}

func run(address, path string) error {
	first, err := partywall.DialChannel(context.Background(), address, nil)
	if err != nil {
		return err
	}
	second, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	carriers := map[string]carrier{"ours": channel{first}, "socket": socket{second}}
	tasks := map[string]uint64{"trip": 0, "way": 1}
	fmt.Println("ready")
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		var name, task string
		var size, count uint64
		if _, err := fmt.Sscan(input.Text(), &name, &task, &size, &count); err != nil {
			return err
		}
		elapsed, err := measure(carriers[name], tasks[task], size, count)
		if err != nil {
			return err
		}
		fmt.Println(elapsed.Nanoseconds())
	}
	return first.Close()
}

// measure performs the client's part of a task with count messages of size bytes, and returns its
// duration.
func measure(c carrier, task, size, count uint64) (time.Duration, error) {
	command := make([]byte, 24)
	binary.LittleEndian.PutUint64(command, task)
	binary.LittleEndian.PutUint64(command[8:], size)
	binary.LittleEndian.PutUint64(command[16:], count)
	if err := c.send(command); err != nil {
		return 0, err
	}
	message, answer := make([]byte, size), make([]byte, size)
	start := time.Now()
	for range count {
		err := c.send(message)
		if err == nil && task == 0 {
			err = c.recv(answer)
		}
		if err != nil {
			return 0, err
		}
	}
	if task == 1 {
		if err := c.recv(answer[:8]); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

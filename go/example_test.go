// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	partywall "partywall.test/go"
)

func answer(listener *partywall.ChannelListener) error {
	channel, err := listener.Accept(context.Background())
	if err != nil {
		return err
	}
	defer channel.Close()
	for {
		request, err := channel.RecvMessage()
		if err == io.EOF {
			return nil // the peer has finished
		}
		if err != nil {
			return err
		}
		err = channel.Send(request.Bytes())
		request.Release()
		if err != nil {
			return err
		}
	}
}

// place returns an address that no other example uses, and a function that removes its directory.
func place() (address string, remove func()) {
	directory, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	return "unix:" + filepath.Join(directory, "app.sock"), func() { _ = os.RemoveAll(directory) }
}

func Example() {
	address, remove := place()
	defer remove()
	listener, err := partywall.ListenChannel(address, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	go answer(listener)

	channel, err := partywall.DialChannel(context.Background(), address, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer channel.Close()
	if err := channel.Send([]byte("hello")); err != nil {
		fmt.Println(err)
		return
	}
	reply, err := channel.RecvMessage()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer reply.Release()
	fmt.Printf("%s over the %v\n", reply.Bytes(), channel.Transport())
	// Output: hello over the shared memory
}

// A long message is written in the memory in which the peer will read it, without a copy.
func ExampleChannel_Reserve() {
	address, remove := place()
	defer remove()
	listener, err := partywall.ListenChannel(address, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	go answer(listener)
	channel, err := partywall.DialChannel(context.Background(), address, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer channel.Close()

	frame, err := channel.Reserve(1 << 20)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range frame.Bytes() {
		frame.Bytes()[i] = 7
	}
	if err := frame.Commit(1 << 20); err != nil {
		fmt.Println(err)
		return
	}
	reply, err := channel.RecvMessage()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer reply.Release()
	fmt.Println(reply.Len(), reply.Bytes()[0])
	// Output: 1048576 7
}

// A deadline ends a call that waits for a message.
func ExampleChannel_SetReadDeadline() {
	address, remove := place()
	defer remove()
	listener, err := partywall.ListenChannel(address, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	go answer(listener)
	channel, err := partywall.DialChannel(context.Background(), address, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer channel.Close()

	if err := channel.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		fmt.Println(err)
		return
	}
	_, err = channel.RecvMessage()
	var failure *partywall.Error
	if errors.As(err, &failure) {
		fmt.Println(failure.ErrorCode(), errors.Is(err, os.ErrDeadlineExceeded))
	}
	// Output: timed out true
}

// A listener admits the processes of one user alone, and refuses all others.
func ExampleConfig() {
	config := &partywall.Config{
		Admit: func(peer partywall.Peer) error {
			if !peer.HasCredentials || int(peer.UID) != os.Geteuid() {
				return fmt.Errorf("%v is not admitted", peer)
			}
			return nil
		},
		HandshakeTimeout: 10 * time.Second,
	}
	address, remove := place()
	defer remove()
	listener, err := partywall.ListenChannel(address, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	go answer(listener)
	channel, err := partywall.DialChannel(context.Background(), address, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(channel.Close())
	// Output: <nil>
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	partywall "partywall.test/go"
)

// serve sends back all messages that come to the endpoints, until the context ends. For each
// endpoint it writes a line once a client can connect there.
func serve(ctx context.Context, arguments []string, output, errorOutput io.Writer) error {
	var config partywall.Config
	config.OnRefused = func(err error) { fmt.Fprintln(errorOutput, "refused:", err) }
	endpoints, err := parse(newFlags("serve", &config, errorOutput), arguments)
	if err != nil {
		return err
	}
	if len(endpoints) == 0 {
		return fmt.Errorf("%w: serve needs an address", errUsage)
	}
	for _, e := range endpoints {
		listener, err := e.listen(&config)
		if err != nil {
			return err
		}
		defer listener.Close()
		fmt.Fprintf(output, "listening on %s\n", listener.endpoint())
		go func() {
			for {
				if err := listener.serveNext(ctx); err != nil {
					if ctx.Err() == nil {
						fmt.Fprintln(errorOutput, "partywall-echo:", err)
					}
					return
				}
			}
		}()
	}
	<-ctx.Done()
	return nil
}

// A listener accepts the clients of one endpoint of the echo server.
type listener interface {
	io.Closer
	// endpoint returns where clients connect, with the port that the system has chosen.
	endpoint() endpoint
	// serveNext waits for the next client, which is then served on a goroutine of its own.
	serveNext(ctx context.Context) error
}

// listen listens at the endpoint for clients of the echo server. Plain sockets are only opened at
// loopback addresses.
func (e endpoint) listen(config *partywall.Config) (listener, error) {
	if !e.isPlain {
		l, err := partywall.ListenChannel(e.address, config)
		return channelListener{l}, err
	}
	network, name, _ := strings.Cut(e.address, ":")
	if network == "tcp" {
		resolved, err := net.ResolveTCPAddr(network, name)
		if err != nil {
			return nil, err
		}
		if !resolved.IP.IsLoopback() {
			return nil, fmt.Errorf("%s: plain lines are served on loopback addresses only", e)
		}
	}
	l, err := net.Listen(network, name)
	return plainListener{l}, err
}

type channelListener struct{ *partywall.ChannelListener }

func (l channelListener) endpoint() endpoint { return endpoint{address: l.Addr().String()} }

func (l channelListener) serveNext(ctx context.Context) error {
	channel, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	go func() {
		// The error is ignored: it means that this client has died or broken a rule, and others are
		// served on.
		_ = echoChannel(channel)
		_ = channel.Close()
	}()
	return nil
}

// echoChannel sends back each message of a channel, until the peer has closed its direction. It
// then closes the direction of this side.
func echoChannel(channel *partywall.Channel) error {
	for {
		message, err := channel.RecvMessage()
		if err == io.EOF {
			return channel.CloseWrite()
		}
		if err != nil {
			return err
		}
		err = channel.Send(message.Bytes())
		message.Release()
		if err != nil {
			return err
		}
	}
}

type plainListener struct{ net.Listener }

func (l plainListener) endpoint() endpoint {
	at := l.Addr()
	return endpoint{address: at.Network() + ":" + at.String(), isPlain: true}
}

func (l plainListener) serveNext(context.Context) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	go func() {
		defer conn.Close()
		buffer := make([]byte, plainBufferBytes)
		for {
			n, err := conn.Read(buffer)
			if n > 0 {
				_, writeErr := conn.Write(buffer[:n])
				err = errors.Join(err, writeErr)
			}
			if err != nil {
				return
			}
		}
	}()
	return nil
}

// plainBufferBytes is the most that the echo server reads or writes at once on a plain socket.
const plainBufferBytes = 64 << 10

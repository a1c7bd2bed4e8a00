// SPDX-License-Identifier: MIT OR Apache-2.0

// The program partywall-echo compares how fast messages go to another process and back, over shared
// memory, Unix sockets and TCP.
//
//	partywall-echo compare                         starts a server, and compares all three
//	partywall-echo serve ADDRESS…                  sends back all messages, at several addresses
//	partywall-echo run ADDRESS…                    sends messages there, checks each, compares
//
// An address is one of package partywall, such as unix:/tmp/e.sock, over which memory is shared if
// both sides can. With plain: before it, as in plain:tcp:127.0.0.1:4000, messages are lines over a
// socket of package net. Servers and clients of the Rust command `partywall echo` take both forms.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	partywall "partywall.test/go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func command(ctx context.Context, arguments []string, output, errorOutput io.Writer) int {
	if len(arguments) == 0 {
		fmt.Fprint(errorOutput, usage)
		return 2
	}
	var err error
	switch arguments[0] {
	case "serve":
		err = serve(ctx, arguments[1:], output, errorOutput)
	case "run":
		err = run(arguments[1:], output, errorOutput)
	case "compare":
		err = compare(arguments[1:], output, errorOutput)
	case "help", "-h", "-help", "--help":
		fmt.Fprint(output, usage)
	default:
		err = fmt.Errorf("%w: there is no subcommand %s", errUsage, arguments[0])
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintln(errorOutput, err)
		return 2
	}
	fmt.Fprintln(errorOutput, "partywall-echo:", err)
	return 1
}

var errUsage = errors.New("partywall-echo")

var transports = map[string]partywall.TransportPolicy{
	"auto": partywall.TransportAuto, "shm": partywall.TransportSharedMemory,
	"socket": partywall.TransportSocket,
}

var waits = map[string]partywall.Wait{
	"adaptive": partywall.WaitAdaptive, "spin": partywall.WaitSpin, "park": partywall.WaitPark,
}

// newFlags returns the command-line flags of a subcommand. Among them are the flags with the
// configuration of channels.
func newFlags(
	name string, config *partywall.Config, errorOutput io.Writer,
) *flag.FlagSet {
	flags := flag.NewFlagSet("partywall-echo "+name, flag.ContinueOnError)
	flags.SetOutput(errorOutput)
	flags.Func("transport", "transport of channels: auto, shm or socket", func(text string) error {
		return choose(&config.Transport, transports, text)
	})
	flags.Func("wait", "how channels wait: adaptive, spin or park", func(text string) error {
		return choose(&config.Wait, waits, text)
	})
	return flags
}

func choose[T any](value *T, from map[string]T, text string) error {
	found, ok := from[text]
	if !ok {
		return fmt.Errorf("there is no %q", text)
	}
	*value = found
	return nil
}

func parse(flags *flag.FlagSet, arguments []string) ([]endpoint, error) {
	if err := flags.Parse(arguments); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	var endpoints []endpoint
	for _, text := range flags.Args() {
		e, err := parseEndpoint(text)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUsage, err)
		}
		endpoints = append(endpoints, e)
	}
	return endpoints, nil
}

// timeoutDefault is the longest wait for one echo.
const timeoutDefault = 10 * time.Second

const usage = `partywall-echo serve|run|compare

  partywall-echo compare -sizes 64,4096,65536 -n 20000
  partywall-echo serve unix:/tmp/e.sock plain:unix:/tmp/p.sock plain:tcp:127.0.0.1:4001
  partywall-echo run unix:/tmp/e.sock plain:unix:/tmp/p.sock plain:tcp:127.0.0.1:4001
  partywall echo run --connect unix:/tmp/e.sock       the Rust command, with the same server

An address that begins with plain: is for lines over a socket, without package partywall.
Each subcommand lists its flags with -help.
`

// SPDX-License-Identifier: MIT OR Apache-2.0

package calls

import "log"

// A Config has the limits of a client or a server. Nil and the zero value are the default.
type Config struct {
	// InFlightMax is for a client: the most calls in flight. Further calls wait. A call that was
	// given up counts until its cancellation has been sent to the server. If zero, 1,024.
	InFlightMax int
	// RunningMax is for a server: the most handlers that run at a time. If zero, 64.
	RunningMax int
	// WaitingMax is for a server: the most calls that wait for a handler. Further calls fail with
	// [ErrBusy], and further one-way calls are dropped. If zero, 1,024; if negative, no call waits.
	WaitingMax int
	// ErrorLog is for a server, and receives the panics of handlers with their stacks. If nil, they
	// go to the standard logger.
	ErrorLog *log.Logger
}

func (c *Config) withDefaults() Config {
	var d Config
	if c != nil {
		d = *c
	}
	for _, limit := range []struct {
		value    *int
		standard int
	}{{&d.InFlightMax, 1024}, {&d.RunningMax, 64}, {&d.WaitingMax, 1024}} {
		if *limit.value == 0 {
			*limit.value = limit.standard
		}
		*limit.value = max(*limit.value, 0)
	}
	d.InFlightMax, d.RunningMax = max(d.InFlightMax, 1), max(d.RunningMax, 1)
	if d.ErrorLog == nil {
		d.ErrorLog = log.Default()
	}
	return d
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// An outcome has the times of the round trips of messages of one size to one endpoint.
type outcome struct {
	endpoint  endpoint
	transport string
	size      int
	times     []time.Duration
	total     time.Duration
}

func (o *outcome) add(elapsed time.Duration) {
	o.times = append(o.times, elapsed)
	o.total += elapsed
}

func (o *outcome) rate() float64 {
	return float64(len(o.times)) / max(o.total.Seconds(), 1e-9)
}

// quantile returns the time that the given part of the round trips did not exceed: 0.5 gives the
// median.
func (o *outcome) quantile(part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(o.times))
	return sorted[int(part*float64(len(sorted)-1))]
}

// A table shows the outcomes of a measurement, and compares those of the same message size.
type table struct{ outcomes []*outcome }

func (t *table) add(o *outcome) { t.outcomes = append(t.outcomes, o) }

// write writes the table. Its last column is the rate of an endpoint divided by the rate of plain
// TCP.
func (t *table) write(output io.Writer) error {
	columns := tabwriter.NewWriter(output, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(columns, "bytes\taddress\tcarried by\tround trips/s\tp50 µs\tp99 µs\t÷ tcp\t")
	for _, o := range t.outcomes {
		ratio := "-"
		if tcp := t.tcp(o.size); tcp != nil {
			ratio = fmt.Sprintf("%.2f", o.rate()/tcp.rate())
		}
		fmt.Fprintf(columns, "%d\t%s\t%s\t%.0f\t%.2f\t%.2f\t%s\t\n", o.size, o.endpoint, o.transport,
			o.rate(), microseconds(o.quantile(0.5)), microseconds(o.quantile(0.99)), ratio)
	}
	return columns.Flush()
}

func (t *table) tcp(size int) *outcome {
	index := slices.IndexFunc(t.outcomes, func(o *outcome) bool {
		return o.size == size && o.endpoint.isTCP()
	})
	if index < 0 {
		return nil
	}
	return t.outcomes[index]
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// SPDX-License-Identifier: MIT OR Apache-2.0

// The Go peer of the conformance tests: shmipc-go as it was published, behind two subcommands.
//
//	peer serve --network unix --address A --map memfd     prints "ready", serves until SIGTERM
//	                                                      or the end of standard input
//	peer run   --network unix --address A --map memfd …   drives traffic, checks every byte, exits
//
// Both subcommands print one line of JSON at their end, and exit with 0 only if every byte was
// right. traffic.go defines the traffic. This program does not change the library's behaviour: a
// fault of the library is a failed run.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	shmipc "github.com/cloudwego/shmipc-go"
)

type options struct {
	network, address, mapping, prefix string
	bufferCap, queueCap               uint
	slices                            string
	sizes                             string
	mode                              string
	streams, sessions, pipeline       int
	count, lease                      uint64
	seed                              uint64
	ignoreBoundaries, putBack         bool
	smallRegion, untilStdin           bool
	deadlineSeconds                   uint
}

func main() {
	if len(os.Args) < 2 {
		usage("which subcommand?")
	}
	o := parse(os.Args[1], os.Args[2:])
	shmipc.SetLogLevel(logLevel())
	ending := func() {
		fmt.Fprintf(os.Stderr, "not done after %d s\n", o.deadlineSeconds)
		removeLeftovers(o.prefix)
		os.Exit(3)
	}
	time.AfterFunc(time.Duration(o.deadlineSeconds)*time.Second, ending)
	switch os.Args[1] {
	case "serve":
		os.Exit(serve(o))
	case "run":
		os.Exit(run(o))
	default:
		usage("there is no subcommand " + os.Args[1])
	}
}

func usage(why string) {
	fmt.Fprintln(os.Stderr, why+"\nusage: peer serve|run --network unix|tcp --address A --map file|memfd …")
	os.Exit(2)
}

func parse(subcommand string, arguments []string) *options {
	o := &options{}
	flags := flag.NewFlagSet(subcommand, flag.ExitOnError)
	flags.StringVar(&o.network, "network", "unix", "unix or tcp")
	flags.StringVar(&o.address, "address", "", "path of the socket, or host:port")
	flags.StringVar(&o.mapping, "map", "memfd", "file or memfd")
	flags.StringVar(&o.prefix, "prefix", defaultPrefix(), "what names of shared memory begin with")
	flags.UintVar(&o.bufferCap, "buffer-cap", 32<<20, "bytes of the buffer region")
	flags.UintVar(&o.queueCap, "queue-cap", 8192, "elements of a queue")
	flags.StringVar(&o.slices, "slices", "", "slice classes, as size:percent,…")
	flags.StringVar(&o.sizes, "sizes", "1", "sizes of the requests, in turn")
	flags.StringVar(&o.mode, "mode", "echo", "echo, upload or download")
	flags.IntVar(&o.streams, "streams", 1, "streams at the same time")
	flags.IntVar(&o.sessions, "sessions", 1, "sessions")
	flags.IntVar(&o.pipeline, "pipeline", 1, "requests under way in a stream")
	flags.Uint64Var(&o.count, "count", 1, "requests in each stream")
	flags.Uint64Var(&o.lease, "lease", 0, "requests until the stream is put back; 0 for all")
	flags.Uint64Var(&o.seed, "seed", 1, "what the bytes are made from")
	flags.BoolVar(&o.ignoreBoundaries, "ignore-boundaries", false, "read pieces that do not end where requests end")
	flags.BoolVar(&o.putBack, "put-back", false, "take streams from the pool and put them back")
	flags.BoolVar(&o.smallRegion, "small-region", false, "a region of 1 MiB, which sends much over the socket")
	flags.BoolVar(&o.untilStdin, "until-stdin-ends", false, "go on until stdin ends; count is that of one round")
	flags.UintVar(&o.deadlineSeconds, "deadline", 120, "seconds after which to give up")
	_ = flags.Parse(arguments)
	if o.address == "" || flags.NArg() != 0 {
		usage("--address is missing, or there are arguments too many")
	}
	if o.smallRegion {
		o.bufferCap = 1 << 20
	}
	if o.lease == 0 {
		o.lease = o.count
	}
	return o
}

func logLevel() int {
	if level, err := strconv.Atoi(os.Getenv("SHMIPC_LOG_LEVEL")); err == nil {
		return level
	}
	return 5 // shmipc-go must not log to stdout, which is for the report
}

func defaultPrefix() string {
	return fmt.Sprintf("/dev/shm/conformance-go-%d-%d", os.Getpid(), time.Now().UnixNano())
}

// config returns shmipc-go's default settings, with the values that the options of the command line
// set.
func (o *options) config() *shmipc.Config {
	config := shmipc.DefaultConfig()
	config.ShareMemoryPathPrefix = o.prefix
	config.QueuePath = o.prefix + "_queue"
	config.ShareMemoryBufferCap = uint32(o.bufferCap)
	config.QueueCap = uint32(o.queueCap)
	config.LogOutput = os.Stderr
	config.InitializeTimeout = 10 * time.Second
	config.MemMapType = shmipc.MemMapTypeMemFd
	if o.mapping == "file" {
		config.MemMapType = shmipc.MemMapTypeDevShmFile
	}
	if o.slices != "" {
		config.BufferSliceSizes = nil
		for _, pair := range strings.Split(o.slices, ",") {
			size, percent, _ := strings.Cut(pair, ":")
			config.BufferSliceSizes = append(config.BufferSliceSizes,
				&shmipc.SizePercentPair{Size: uint32(number(size)), Percent: uint32(number(percent))})
		}
	}
	return config
}

func number(text string) uint64 {
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		usage("not a number: " + text)
	}
	return value
}

func (o *options) planSizes() []uint64 {
	var sizes []uint64
	for _, size := range strings.Split(o.sizes, ",") {
		sizes = append(sizes, number(size))
	}
	return sizes
}

// removeLeftovers removes the files of shared memory that shmipc-go has left. Their names have the
// prefix that the option --prefix gave them.
func removeLeftovers(prefix string) {
	names, _ := filepath.Glob(prefix + "*")
	for _, name := range names {
		_ = os.Remove(name)
	}
}

// report collects the results of one run of this program, and prints them as one line of JSON at
// the end.
type report struct {
	mutex        sync.Mutex
	Role         string            `json:"role"`
	Peer         string            `json:"peer"`
	Streams      uint64            `json:"streams"`
	StreamsOpen  uint64            `json:"streams_open"`
	Requests     uint64            `json:"requests"`
	Bytes        uint64            `json:"bytes"`
	UploadsWhole uint64            `json:"uploads_whole"`
	UploadsCut   uint64            `json:"uploads_cut"`
	Failed       uint64            `json:"failed"`
	Errors       []string          `json:"errors"`
	Metrics      map[string]uint64 `json:"metrics"`
}

func newReport(role string) *report {
	return &report{Role: role, Peer: "shmipc-go 0.2.0", Errors: []string{}, Metrics: map[string]uint64{}}
}

func (r *report) with(change func(*report)) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	change(r)
}

func (r *report) fail(err error) {
	r.with(func(r *report) {
		r.Failed++
		if len(r.Errors) < errorsMax {
			r.Errors = append(r.Errors, err.Error())
		}
	})
}

// OnEmitSessionMetrics is called by shmipc-go at the end of each session, with the metrics of that
// session. Together with Flush it implements the library's interface Monitor.
func (r *report) OnEmitSessionMetrics(performance shmipc.PerformanceMetrics, stability shmipc.StabilityMetrics,
	memory shmipc.ShareMemoryMetrics, _ *shmipc.Session) {
	r.with(func(r *report) {
		r.Metrics["sessions"]++
		r.Metrics["receive_sync_event_count"] += performance.ReceiveSyncEventCount
		r.Metrics["send_sync_event_count"] += performance.SendSyncEventCount
		r.Metrics["out_flow_bytes"] += performance.OutFlowBytes
		r.Metrics["in_flow_bytes"] += performance.InFlowBytes
		r.Metrics["fallback_write_count"] += stability.FallbackWriteCount
		r.Metrics["fallback_read_count"] += stability.FallbackReadCount
		r.Metrics["alloc_shm_error_count"] += stability.AllocShmErrorCount
		r.Metrics["queue_full_error_count"] += stability.QueueFullErrorCount
		r.Metrics["active_stream_count"] += stability.ActiveStreamCount
		r.Metrics["all_in_used_share_memory_in_bytes"] = memory.AllInUsedShareMemoryInBytes
	})
}

// Flush is the other method of shmipc-go's interface Monitor; the report writes nothing until the
// end of the run, so there is nothing to flush.
func (r *report) Flush() error { return nil }

func (r *report) print() int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	line, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
	if r.Failed > 0 {
		return 1
	}
	return 0
}

const errorsMax = 10

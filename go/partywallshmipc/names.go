// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallshmipc

import "github.com/cloudwego/shmipc-go"

// The types of shmipc-go that this package takes or returns unchanged.
type (
	// BufferReader reads from a stream.
	BufferReader = shmipc.BufferReader
	// BufferWriter writes to a stream.
	BufferWriter = shmipc.BufferWriter
	// StreamCallbacks has the functions that are called for events of a stream.
	StreamCallbacks = shmipc.StreamCallbacks
	// Config has settings of a session. The sizes of buffers and queues are those of connections of
	// shmipc-go; partywall has its own in [SessionManagerConfig] and [ListenerConfig].
	Config = shmipc.Config
	// MemMapType says which memory a client of shmipc-go creates.
	MemMapType = shmipc.MemMapType
	// SizePercentPair is a size of buffers of shmipc-go, and its share of the memory.
	SizePercentPair = shmipc.SizePercentPair
)

// The values of [MemMapType]. They have no effect on partywall, whose memory has no name.
const (
	MemMapTypeDevShmFile = shmipc.MemMapTypeDevShmFile
	MemMapTypeMemFd      = shmipc.MemMapTypeMemFd
)

// The errors of shmipc-go that streams and sessions of this package return, as they are.
var (
	ErrEndOfStream              = shmipc.ErrEndOfStream
	ErrNotEnoughData            = shmipc.ErrNotEnoughData
	ErrSessionShutdown          = shmipc.ErrSessionShutdown
	ErrStreamCallbackHadExisted = shmipc.ErrStreamCallbackHadExisted
	ErrStreamClosed             = shmipc.ErrStreamClosed
	ErrTimeout                  = shmipc.ErrTimeout
)

// DefaultConfig returns the default configuration of shmipc-go.
func DefaultConfig() *Config { return shmipc.DefaultConfig() }

// VerifyConfig checks a configuration of shmipc-go.
func VerifyConfig(config *Config) error { return shmipc.VerifyConfig(config) }

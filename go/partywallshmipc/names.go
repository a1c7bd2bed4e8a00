// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallshmipc

import "github.com/cloudwego/shmipc-go"

// The types of shmipc-go that this package uses unchanged.
type (
	// BufferReader reads the received bytes of a stream.
	BufferReader = shmipc.BufferReader
	// BufferWriter collects bytes that a stream sends.
	BufferWriter = shmipc.BufferWriter
	// StreamCallbacks has the functions that are called for events of a stream.
	StreamCallbacks = shmipc.StreamCallbacks
	// Config has settings of a session. Its sizes of buffers and queues apply to connections of
	// shmipc-go alone; settings for connections of partywall are in [SessionManagerConfig] and
	// [ListenerConfig].
	Config = shmipc.Config
	// MemMapType says which memory a client of shmipc-go creates.
	MemMapType = shmipc.MemMapType
	// SizePercentPair is a size of the buffers of shmipc-go, and the share of its memory that such
	// buffers take.
	SizePercentPair = shmipc.SizePercentPair
)

// The values of [MemMapType]. They have no effect on partywall, whose memory has no name.
const (
	MemMapTypeDevShmFile = shmipc.MemMapTypeDevShmFile
	MemMapTypeMemFd      = shmipc.MemMapTypeMemFd
)

// The errors of shmipc-go that streams and sessions of this package return.
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

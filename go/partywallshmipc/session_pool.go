// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallshmipc

import (
	"sync"
	"sync/atomic"
	"time"

	partywall "partywall.test/go"
)

// SessionManagerConfig has the settings of a [SessionManager].
type SessionManagerConfig struct {
	// Config has the timeouts of the sessions; its sizes of buffers have no effect.
	*Config
	// UnixPath is the path of the listener's socket. If it is not empty, Network and Address have
	// no effect.
	UnixPath string
	// Network is "unix" or "tcp", the kind of the listener's socket.
	Network string
	// Address is the path of the listener's socket, or a host and port.
	Address string
	// SessionNum is the number of sessions that a SessionManager keeps.
	SessionNum int
	// MaxStreamNum bounds the idle streams that a SessionManager keeps for each session.
	MaxStreamNum int
	// StreamMaxIdleTime has no effect, as in shmipc-go v0.2.0.
	StreamMaxIdleTime time.Duration
	// Partywall has the settings of the sessions. If its StreamWindow is zero, it is 8 MiB.
	Partywall partywall.Config
}

// DefaultSessionManagerConfig returns the default settings: one session, and up to 4,096 idle
// streams.
func DefaultSessionManagerConfig() *SessionManagerConfig {
	return &SessionManagerConfig{
		Config: DefaultConfig(), SessionNum: 1, MaxStreamNum: 4096,
		StreamMaxIdleTime: 30 * time.Second,
	}
}

// A SessionManager keeps sessions with one listener, and idle streams for their next use. When a
// session is over, it connects again. Any number of goroutines may use it.
type SessionManager struct {
	config SessionManagerConfig
	pools  []*streamPool
	count  atomic.Uint64
	over   chan struct{} // closed by Close
	once   sync.Once
	served sync.WaitGroup
}

// NewSessionManager connects all sessions of the configuration.
func NewSessionManager(config *SessionManagerConfig) (*SessionManager, error) {
	m := &SessionManager{config: *config, over: make(chan struct{})}
	for range max(config.SessionNum, 1) {
		session, err := dial(&m.config)
		if err != nil {
			_ = m.Close()
			return nil, err
		}
		pool := &streamPool{max: config.MaxStreamNum, session: session}
		m.pools = append(m.pools, pool)
		m.served.Go(func() { m.keep(pool) })
	}
	return m, nil
}

// keep makes a new session for the pool of idle streams each time the session of the pool is over.
func (m *SessionManager) keep(pool *streamPool) {
	for {
		select {
		case <-pool.current().CloseChan():
		case <-m.over:
			return
		}
		for pause := rebuildPauseMin; ; pause = min(2*pause, rebuildPauseMax) {
			session, err := dial(&m.config)
			if err == nil {
				pool.replace(session)
				break
			}
			select {
			case <-time.After(pause):
			case <-m.over:
				return
			}
		}
	}
}

// GetStream returns an idle stream, or opens a new one. The caller gives it back by
// [SessionManager.PutBack].
func (m *SessionManager) GetStream() (*Stream, error) {
	next := m.count.Add(1) / streamsPerTurn % uint64(len(m.pools))
	return m.pools[next].get()
}

// PutBack keeps the stream for its next use if all its bytes were read, and closes it otherwise.
func (m *SessionManager) PutBack(stream *Stream) {
	if stream != nil && stream.pool != nil {
		stream.pool.put(stream)
	}
}

// Close closes all sessions of the SessionManager.
func (m *SessionManager) Close() error {
	m.once.Do(func() { close(m.over) })
	m.served.Wait()
	for _, pool := range m.pools {
		_ = pool.current().Close()
	}
	return nil
}

var (
	globalMutex sync.Mutex
	global      *SessionManager
)

// GlobalSessionManager returns the SessionManager that [InitGlobalSessionManager] has made for this
// process, or nil.
func GlobalSessionManager() *SessionManager {
	globalMutex.Lock()
	defer globalMutex.Unlock()
	return global
}

// InitGlobalSessionManager makes a SessionManager for the whole process. If it has been called
// before, it returns the SessionManager that it made then.
func InitGlobalSessionManager(config *SessionManagerConfig) (*SessionManager, error) {
	globalMutex.Lock()
	defer globalMutex.Unlock()
	if global != nil {
		return global, nil
	}
	made, err := NewSessionManager(config)
	if err != nil {
		return nil, err
	}
	global = made
	return global, nil
}

const (
	// streamsPerTurn is the number of streams that GetStream takes from one session before it goes
	// on to the next session.
	streamsPerTurn = 32
	// rebuildPauseMin and rebuildPauseMax bound the pause between two attempts to connect a session
	// again.
	rebuildPauseMin = 10 * time.Millisecond
	rebuildPauseMax = time.Second
)

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
	// Config has timeouts; the sizes of shmipc-go have no effect.
	*Config
	// UnixPath is the socket of the listener if it is not empty, whatever Network and Address are.
	UnixPath string
	// Network is "unix" or "tcp".
	Network string
	// Address is the path of the socket, or host and port.
	Address string
	// SessionNum is the number of sessions.
	SessionNum int
	// MaxStreamNum bounds the streams that are kept for each session.
	MaxStreamNum int
	// StreamMaxIdleTime has no effect, as in shmipc-go v0.2.0.
	StreamMaxIdleTime time.Duration
	// Partywall has the settings of the sessions. If its StreamWindow is zero, it is 8 MiB.
	Partywall partywall.Config
}

// DefaultSessionManagerConfig returns one session and 4,096 streams.
func DefaultSessionManagerConfig() *SessionManagerConfig {
	return &SessionManagerConfig{
		Config: DefaultConfig(), SessionNum: 1, MaxStreamNum: 4096,
		StreamMaxIdleTime: 30 * time.Second,
	}
}

// A SessionManager keeps sessions with one listener, and streams for their next use. It connects
// again when a session is over. Any number of goroutines may use it.
type SessionManager struct {
	config SessionManagerConfig
	pools  []*streamPool
	count  atomic.Uint64
	over   chan struct{} // closed by Close
	once   sync.Once
	served sync.WaitGroup
}

// NewSessionManager connects all sessions.
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

// keep connects again each time the session of the pool is over.
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

// GetStream returns a stream. The caller returns it by [SessionManager.PutBack].
func (m *SessionManager) GetStream() (*Stream, error) {
	next := m.count.Add(1) / streamsPerTurn % uint64(len(m.pools))
	return m.pools[next].get()
}

// PutBack keeps the stream for its next use if everything was read, and closes it otherwise.
func (m *SessionManager) PutBack(stream *Stream) {
	if stream != nil && stream.pool != nil {
		stream.pool.put(stream)
	}
}

// Close closes all sessions.
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

// GlobalSessionManager returns the one that [InitGlobalSessionManager] has made, or nil.
func GlobalSessionManager() *SessionManager {
	globalMutex.Lock()
	defer globalMutex.Unlock()
	return global
}

// InitGlobalSessionManager makes a SessionManager for the whole process, or returns the one that
// was made before.
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
	// streamsPerTurn is the number of streams that one session gives before the next one does.
	streamsPerTurn = 32
	// rebuildPauseMin and rebuildPauseMax bound the pause before the next attempt to connect.
	rebuildPauseMin = 10 * time.Millisecond
	rebuildPauseMax = time.Second
)

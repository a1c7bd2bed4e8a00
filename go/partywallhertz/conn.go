// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallhertz

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	hertz "github.com/cloudwego/hertz/pkg/common/errors"
	"github.com/cloudwego/hertz/pkg/network"

	partywall "partywall.test/go"
)

// A conn is a connection with the buffers that a client of Hertz uses.
//
//	in    | released or skipped | unread       | free     |
//	      0                     read           len(in)    cap(in)
//	out   chunks in the order of writing; the last one may have room
//
// The bytes that Peek has returned stay valid until Release: a buffer that is too small is
// replaced, and never moved. The memory that Malloc has returned stays valid until Flush. As with
// other connections of Hertz, one goroutine at a time reads, and one writes.
type conn struct {
	net.Conn
	in      []byte
	read    int   // index of the first unread byte
	readErr error // what the connection returned after the bytes of in
	out     [][]byte
	first   []byte // memory for the first chunk that Malloc makes after a Flush
	isUsed  bool   // first is a chunk of out
}

var (
	_ network.Conn               = (*conn)(nil)
	_ network.ErrorNormalization = (*conn)(nil)
)

func newConn(c net.Conn) *conn { return &conn{Conn: c} }

// Len returns the number of bytes that can be read without waiting.
func (c *conn) Len() int { return len(c.in) - c.read }

// Peek returns the next n bytes, which stay unread. If fewer bytes come before the end, Peek
// returns them together with the error that ended the connection.
func (c *conn) Peek(n int) ([]byte, error) {
	for c.Len() < n {
		if c.readErr != nil {
			err := c.readErr
			c.readErr = nil // the next call reads again: the error may be a deadline
			return c.in[c.read:], err
		}
		c.fill(n)
	}
	return c.in[c.read : c.read+n : c.read+n], nil
}

// fill reads from the connection once, into a buffer that is large enough for n unread bytes.
func (c *conn) fill(n int) {
	if cap(c.in)-c.read < n {
		// The new buffer is also large enough for the header of the next message, so that the body
		// of that message fits as well.
		larger := make([]byte, c.Len(), max(n, 2*c.Len())+bufferBytes)
		copy(larger, c.in[c.read:])
		c.in, c.read = larger, 0
	}
	count, err := c.Conn.Read(c.in[len(c.in):cap(c.in)])
	c.in = c.in[:len(c.in)+count]
	c.readErr = plainReset(err)
}

// Skip drops the next n bytes, which a call of Peek must have returned before.
func (c *conn) Skip(n int) error {
	if c.Len() < n {
		return fmt.Errorf("partywallhertz: %d bytes to skip, of %d", n, c.Len())
	}
	c.read += n
	return nil
}

// Release ends the use of the bytes that Peek has returned. A large buffer whose bytes were all
// read is freed.
func (c *conn) Release() error {
	if c.Len() > 0 {
		return nil
	}
	c.read = 0
	c.in = c.in[:0]
	if cap(c.in) > keptBytes {
		c.in = nil
	}
	return nil
}

func (c *conn) ReadByte() (byte, error) {
	b, err := c.Peek(1)
	if err != nil {
		return 0, err
	}
	c.read++
	return b[0], nil
}

func (c *conn) ReadBinary(n int) ([]byte, error) {
	b, err := c.Peek(n)
	if err != nil {
		return nil, err
	}
	c.read += n
	return append(make([]byte, 0, n), b...), nil
}

// Read copies unread bytes of the buffer to b, or reads from the connection if the buffer has none.
func (c *conn) Read(b []byte) (int, error) {
	if c.Len() == 0 {
		if err := c.readErr; err != nil {
			c.readErr = nil
			return 0, err
		}
		n, err := c.Conn.Read(b)
		return n, plainReset(err)
	}
	n := copy(b, c.in[c.read:])
	c.read += n
	return n, nil
}

// Malloc returns n bytes for the caller to fill, which the next Flush sends.
func (c *conn) Malloc(n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	last := len(c.out) - 1
	if last < 0 || cap(c.out[last])-len(c.out[last]) < n {
		c.out = append(c.out, c.newChunk(n))
		last++
	}
	start := len(c.out[last])
	c.out[last] = c.out[last][:start+n]
	return c.out[last][start : start+n : start+n], nil
}

// newChunk returns a buffer for outgoing bytes, of at least n bytes.
func (c *conn) newChunk(n int) []byte {
	if c.isUsed || n > bufferBytes {
		return make([]byte, 0, max(n, bufferBytes))
	}
	if c.first == nil {
		c.first = make([]byte, 0, bufferBytes)
	}
	c.isUsed = true
	return c.first
}

// WriteBinary makes the next Flush send the bytes b. Until then b must not be changed.
func (c *conn) WriteBinary(b []byte) (int, error) {
	if len(b) < bufferBytes {
		room, err := c.Malloc(len(b))
		return copy(room, b), err
	}
	c.out = append(c.out, b[:len(b):len(b)])
	return len(b), nil
}

// Flush sends the bytes that were written to the buffers. After an error it drops the remaining
// bytes.
func (c *conn) Flush() error {
	defer c.forget()
	if gatherer, ok := c.Conn.(bufferWriter); ok && len(c.out) > 1 {
		_, err := gatherer.WriteBuffers(c.out...)
		return err
	}
	for _, chunk := range c.out {
		if _, err := c.Conn.Write(chunk); err != nil {
			return err
		}
	}
	return nil
}

// forget drops the buffers of outgoing bytes, except that it keeps the memory of the first.
func (c *conn) forget() {
	clear(c.out)
	c.out, c.isUsed = c.out[:0], false
}

// A bufferWriter writes several buffers in one call. A stream is such a writer, and so sends the
// header and the body of an HTTP message together.
type bufferWriter interface {
	WriteBuffers(buffers ...[]byte) (int64, error)
}

var _ bufferWriter = (*partywall.Stream)(nil)

// Write sends the bytes that were written to the buffers before, and then b.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.Flush(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// SetReadTimeout sets the longest time for reading from now on. 0 means that there is no bound.
func (c *conn) SetReadTimeout(t time.Duration) error { return c.SetReadDeadline(deadline(t)) }

// SetWriteTimeout sets the longest time for writing from now on. 0 means that there is no bound.
func (c *conn) SetWriteTimeout(t time.Duration) error { return c.SetWriteDeadline(deadline(t)) }

// ToHertzError returns the error of Hertz that corresponds to an error of this connection.
func (*conn) ToHertzError(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return hertz.ErrTimeout
	case errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return hertz.ErrConnectionClosed
	}
	return err
}

func deadline(t time.Duration) time.Time {
	if t <= 0 {
		return time.Time{}
	}
	return time.Now().Add(t)
}

// plainReset returns syscall.ECONNRESET for each error that wraps it. Hertz compares errors with
// "==" when it decides whether to send a request again because a pooled connection has ended.
func plainReset(err error) error {
	if err != nil && err != io.EOF && errors.Is(err, syscall.ECONNRESET) {
		return syscall.ECONNRESET
	}
	return err
}

const (
	// bufferBytes is the size in bytes of a new buffer. Bytes of the caller that are longer than
	// this are sent from the caller's memory, without a copy.
	bufferBytes = 4096
	// keptBytes is the size in bytes of the largest buffer that a connection keeps for the next
	// response.
	keptBytes = 512 << 10
)

// SPDX-License-Identifier: MIT OR Apache-2.0

// The traffic of the conformance tests: the bytes that travel in a stream, the same in every
// program.
//
//	plan     "PWCONF01" | mode u64 | seed u64 | requests u64 | sizes u64 | size u64 …     big-endian
//	request  exactly as many bytes as its turn in the plan says, without a header
//
// A stream carries plans one after the other, each followed by its requests. The bytes of request i
// are made from the seed and i, so both sides know them without a header. So a request of one byte
// takes one byte of the shared memory.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"

	shmipc "github.com/cloudwego/shmipc-go"
)

// Modes of the traffic: they say which side sends the announced requests, and what the server
// answers.
const (
	modeEcho     = 0 // the server answers each request with the same bytes
	modeUpload   = 1 // the client sends all and closes at once; the server counts complete uploads
	modeDownload = 2 // the server sends all requests and closes at once
	modeReport   = 3 // the server answers with counts: complete uploads, cut uploads, open streams
)

const (
	planMagic      = "PWCONF01"
	planFixedBytes = 8 + 4*8
	planSizesMax   = 1024
	requestMax     = 1 << 30
)

type plan struct {
	mode     uint64
	seed     uint64
	requests uint64
	sizes    []uint64
}

func (p *plan) encode() []byte {
	out := []byte(planMagic)
	for _, word := range []uint64{p.mode, p.seed, p.requests, uint64(len(p.sizes))} {
		out = binary.BigEndian.AppendUint64(out, word)
	}
	for _, size := range p.sizes {
		out = binary.BigEndian.AppendUint64(out, size)
	}
	return out
}

func (p *plan) size(request uint64) int {
	return int(p.sizes[request%uint64(len(p.sizes))])
}

// readPlan reads the message that announces the next requests; it returns nil at the end of the
// stream.
func readPlan(stream *shmipc.Stream) (*plan, error) {
	head, err := stream.BufferReader().ReadBytes(planFixedBytes)
	if errors.Is(err, shmipc.ErrEndOfStream) && stream.BufferReader().Len() == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading a plan with %d bytes there: %w", stream.BufferReader().Len(), err)
	}
	if string(head[:8]) != planMagic {
		return nil, fmt.Errorf("a plan begins with %x", head[:8])
	}
	word := func(index int) uint64 { return binary.BigEndian.Uint64(head[8+8*index:]) }
	read := &plan{mode: word(0), seed: word(1), requests: word(2)}
	count := word(3)
	stream.BufferReader().ReleasePreviousRead()
	if count == 0 || count > planSizesMax {
		return nil, fmt.Errorf("a plan has %d sizes", count)
	}
	body, err := stream.BufferReader().ReadBytes(int(8 * count))
	if err != nil {
		return nil, fmt.Errorf("reading the sizes of a plan: %w", err)
	}
	for index := uint64(0); index < count; index++ {
		size := binary.BigEndian.Uint64(body[8*index:])
		if size == 0 || size > requestMax {
			return nil, fmt.Errorf("a plan has the size %d", size)
		}
		read.sizes = append(read.sizes, size)
	}
	stream.BufferReader().ReleasePreviousRead()
	return read, nil
}

// pattern makes or checks the bytes of one request, which follow from the plan's seed and the
// request's number.
type pattern struct {
	state uint64
	word  [8]byte
	used  int
}

func newPattern(seed, request uint64) *pattern {
	return &pattern{state: seed + request*0x9e3779b97f4a7c15, used: 8}
}

func (p *pattern) next() {
	p.state = p.state*6364136223846793005 + 1442695040888963407
	binary.LittleEndian.PutUint64(p.word[:], p.state^p.state>>32)
	p.used = 0
}

func (p *pattern) fill(out []byte) {
	for len(out) > 0 {
		if p.used == 8 {
			p.next()
		}
		count := copy(out, p.word[p.used:])
		p.used += count
		out = out[count:]
	}
}

// check compares got with the next bytes of the request, and returns the index of the first wrong
// byte in got, or -1.
func (p *pattern) check(got []byte) int {
	for index := 0; index < len(got); {
		if p.used == 8 {
			p.next()
			if len(got)-index >= 8 && [8]byte(got[index:index+8]) == p.word {
				p.used = 8
				index += 8
				continue
			}
		}
		if got[index] != p.word[p.used] {
			return index
		}
		p.used++
		index++
	}
	return -1
}

func requestBytes(p *plan, index uint64, buffer []byte) []byte {
	size := p.size(index)
	if cap(buffer) < size {
		buffer = make([]byte, size)
	}
	buffer = buffer[:size]
	newPattern(p.seed, index).fill(buffer)
	return buffer
}

// readRequest reads exactly request `index`, in pieces of at most `piece` bytes, and checks it. If
// `keep` is not nil, the request is appended to it and returned.
func readRequest(stream *shmipc.Stream, p *plan, index uint64, piece int, keep []byte) ([]byte, error) {
	expected := newPattern(p.seed, index)
	size := p.size(index)
	for done := 0; done < size; {
		count := min(piece, size-done)
		got, err := stream.BufferReader().ReadBytes(count)
		if err != nil {
			return keep, fmt.Errorf("request %d of %d bytes, after %d of them: %w", index, size, done, err)
		}
		if wrong := expected.check(got); wrong >= 0 {
			return keep, fmt.Errorf("request %d of %d bytes: byte %d is wrong", index, size, done+wrong)
		}
		if keep != nil {
			keep = append(keep, got...)
		}
		stream.BufferReader().ReleasePreviousRead()
		done += count
	}
	return keep, nil
}

func send(stream *shmipc.Stream, message []byte) error {
	if _, err := stream.BufferWriter().WriteBytes(message); err != nil {
		return fmt.Errorf("writing %d bytes: %w", len(message), err)
	}
	if err := stream.Flush(false); err != nil {
		return fmt.Errorf("flushing %d bytes: %w", len(message), err)
	}
	return nil
}

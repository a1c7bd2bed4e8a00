// SPDX-License-Identifier: MIT OR Apache-2.0

package calls

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	partywall "partywall.test/go"
	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/layout"
)

// A Handler handles a call, in a goroutine of its own, and returns the answer. The context ends
// when nobody waits for the answer any more: the client has given the call up, the deadline has
// passed, or the stream has ended. The handler should return then.
//
// With a [*Failure] the call fails with its code. With any other error, or if the handler panics,
// it fails with [ErrAborted], and the client sees the text of the error.
type Handler func(ctx context.Context, request *Request) ([]byte, error)

// A Request is a call as its handler receives it. The context of the handler has the deadline of
// the call.
type Request struct {
	message  *partywall.Message
	isOneWay bool
}

// Bytes returns the payload of the call. A long one may lie in the client's memory. The handler
// only reads it, and only until it returns; it may be the answer.
func (r *Request) Bytes() []byte { return r.message.Bytes()[headerBytes:] }

// IsOneWay reports whether the call has no answer.
func (r *Request) IsOneWay() bool { return r.isOneWay }

// A server answers the calls of one stream.
//
//	receive ─┬─ CALL ───▶ run: handler, then ANSWER or ERROR     a goroutine for each handler
//	         │            or wait, or ERROR busy
//	         └─ CANCEL ─▶ the context of the call ends
//
// It receives even while the maximum of handlers runs and the maximum of calls waits, so that it
// always gets a CANCEL (CALLS 4.1).
type server struct {
	stream  *partywall.Stream
	handler Handler
	config  Config
	ctx     context.Context // of all handlers
	cancel  context.CancelFunc
	// calls counts the calls that run or wait, and the functions that watch their deadlines.
	calls sync.WaitGroup

	mu      sync.Mutex
	serving serving[*received]
	failure error // why answers cannot be sent
}

// A received is a call that runs or waits.
type received struct {
	id      uint64
	request Request
	ctx     context.Context
	cancel  context.CancelFunc
	// unwatch stops the function that watches the deadline; nil without a deadline.
	unwatch func() bool
	// isSettled: the call has its result, or needs none.
	isSettled atomic.Bool
}

// settle reports whether the caller is the one that sends the result.
func (c *received) settle() bool { return c.isSettled.CompareAndSwap(false, true) }

// Serve answers the calls that arrive on the stream, each with the result of the handler. It
// returns once all handlers have returned: nil if the client has finished and every call is
// answered, the error of ctx after its end, or an [*Error] if the stream has ended early. Serve
// closes the stream. Nil is the default configuration.
func Serve(ctx context.Context, stream *partywall.Stream, handler Handler, config *Config) error {
	s := &server{stream: stream, handler: handler, config: config.withDefaults()}
	s.serving = newServing[*received](s.config)
	s.ctx, s.cancel = context.WithCancel(ctx)
	defer s.cancel()
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() })
	err := s.receiveAll()
	if err != nil {
		if isViolation(err) {
			stream.Stop(codeViolation)
			stream.Reset(codeViolation)
		}
		s.giveUpAll()
	}
	s.calls.Wait()
	stop()
	// The error is ignored: the stream may be closed already.
	_ = stream.Close()
	if ctx.Err() != nil && err != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return s.failure
	}
	return err
}

// receiveAll receives until the client has finished its direction; then the error is nil.
func (s *server) receiveAll() error {
	for {
		message, err := s.stream.RecvMessage()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return lost(err)
		}
		if err := s.receive(message); err != nil {
			return err
		}
	}
}

func (s *server) receive(message *partywall.Message) error {
	f, err := decode(message.Bytes())
	if err == nil && (f.kind == kindAnswer || f.kind == kindError) {
		err = violation(layout.ErrorCallRole,
			"the frame with id %d is one of a server: are both sides servers?", f.id)
	}
	switch {
	case err != nil:
		message.Release()
		return err
	case f.kind == kindCancel:
		message.Release()
		s.giveUp(f.id)
		return nil
	}
	return s.arrive(f, message)
}

// arrive runs a call, keeps it waiting or refuses it.
func (s *server) arrive(f frame, message *partywall.Message) error {
	call := &received{id: f.id, request: Request{message, f.kind == kindOneWay}}
	s.calls.Add(1)
	s.begin(call, f.word)
	s.mu.Lock()
	arrival, err := s.serving.arrive(f.id, call)
	s.mu.Unlock()
	if err == nil && arrival == arrivalRuns {
		go s.run(call)
	}
	if err == nil && arrival != arrivalRefused {
		return nil
	}
	isDue := call.settle()
	s.release(call)
	if err == nil && isDue && f.kind == kindCall {
		s.send(frame{kindError, codeBusy, f.id}, nil)
	}
	return err
}

// begin makes the context of a call, with the time that is left.
func (s *server) begin(call *received, leftUs uint32) {
	if leftUs == 0 || fault.Is("deadline_dropped") {
		call.ctx, call.cancel = context.WithCancel(s.ctx)
		return
	}
	left := time.Duration(leftUs) * time.Microsecond
	call.ctx, call.cancel = context.WithTimeout(s.ctx, left)
	s.calls.Add(1)
	call.unwatch = context.AfterFunc(call.ctx, func() {
		defer s.calls.Done()
		s.expire(call)
	})
}

// expire fails a call whose deadline has passed (CALLS 4.4).
func (s *server) expire(call *received) {
	if call.ctx.Err() != context.DeadlineExceeded || !call.settle() {
		return
	}
	if !call.request.isOneWay {
		s.send(frame{kindError, codeDeadline, call.id}, nil)
	}
	s.drop(call.id)
}

// giveUp ends the context of a call, or removes the call if it waits. An unknown id is ignored: the
// answer and CANCEL have crossed (CALLS 4.3).
func (s *server) giveUp(id uint64) {
	if call := s.drop(id); call != nil {
		call.settle()
		call.cancel()
	}
}

// drop removes a call if it waits. It returns the call if it runs.
func (s *server) drop(id uint64) *received {
	s.mu.Lock()
	call, isRunning, wasWaiting := s.serving.find(id)
	s.mu.Unlock()
	if wasWaiting {
		call.settle()
		s.release(call)
	}
	if isRunning {
		return call
	}
	return nil
}

// giveUpAll ends the contexts of all calls, and removes those that wait.
func (s *server) giveUpAll() {
	s.mu.Lock()
	drained := s.serving.drain()
	s.mu.Unlock()
	for _, waiting := range drained {
		waiting.call.settle()
		s.release(waiting.call)
	}
	s.cancel()
}

// run runs the handler of a call, and sends the result.
func (s *server) run(call *received) {
	defer s.finish(call)
	if call.isSettled.Load() || s.ctx.Err() != nil {
		return
	}
	answer, err := s.handle(call)
	if !call.settle() || call.request.isOneWay {
		return
	}
	if err != nil {
		s.sendFailure(call, err)
		return
	}
	s.send(frame{kindAnswer, 0, call.id}, answer)
}

// handle calls the handler, and makes an error of a panic.
func (s *server) handle(call *received) (answer []byte, err error) {
	defer func() {
		if value := recover(); value != nil {
			s.config.ErrorLog.Printf("calls: the handler of call %d panicked: %v\n%s",
				call.id, value, debug.Stack())
			err = errors.New("the handler panicked")
		}
	}()
	return s.handler(call.ctx, &call.request)
}

// sendFailure sends the ERROR for the error of a handler.
func (s *server) sendFailure(call *received, err error) {
	var failure *Failure
	switch {
	case errors.As(err, &failure) && failure.Code < codesReserved:
		s.send(frame{kindError, failure.Code, call.id}, failure.Detail)
	case failure != nil:
		s.config.ErrorLog.Printf("calls: the code %#x of a failure is reserved", failure.Code)
		s.send(frame{kindError, codeAborted, call.id}, nil)
	case call.ctx.Err() == context.DeadlineExceeded:
		s.send(frame{kindError, codeDeadline, call.id}, nil)
	default:
		s.send(frame{kindError, codeAborted, call.id}, []byte(err.Error()))
	}
}

// finish ends a call that ran, and runs the next one.
func (s *server) finish(call *received) {
	if call.settle() && !call.request.isOneWay { // the handler has ended its goroutine
		s.send(frame{kindError, codeAborted, call.id}, nil)
	}
	s.mu.Lock()
	next, isThere := s.serving.finish(call.id)
	s.mu.Unlock()
	if isThere {
		go s.run(next)
	}
	s.release(call)
}

// release frees what a call has. The call neither runs nor waits any more.
func (s *server) release(call *received) {
	if call.unwatch != nil && call.unwatch() {
		s.calls.Done()
	}
	call.cancel()
	call.request.message.Release()
	s.calls.Done()
}

// send sends the result of a call. One that is too long becomes ERROR aborted.
func (s *server) send(f frame, payload []byte) {
	header := f.encode()
	err := s.stream.SendParts(s.ctx, header[:], payload)
	if errors.Is(err, syscall.EMSGSIZE) {
		header = frame{kindError, codeAborted, f.id}.encode()
		err = s.stream.SendParts(s.ctx, header[:], []byte(err.Error()))
	}
	s.sent(err)
}

// sent ends the server if a result could not be sent. A client that receives no more is no error:
// it has given up all its calls.
func (s *server) sent(err error) {
	var ended *partywall.Error
	switch {
	case err == nil, s.ctx.Err() != nil:
		return
	case errors.As(err, &ended) && ended.ErrorCode() == partywall.ErrorCode(layout.ErrorStreamStopped):
		return
	}
	s.mu.Lock()
	if s.failure == nil {
		failure := lost(err)
		failure.text = "answers cannot be sent"
		s.failure = failure
	}
	s.mu.Unlock()
	_ = s.stream.Close() // ends the receiving
}

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
// If the handler returns a [*Failure], the call fails with the code of the Failure. If it returns
// any other error, or panics, the call fails with [ErrAborted], and the client sees the text of the
// error.
type Handler func(ctx context.Context, request *Request) ([]byte, error)

// A Request is a call as its handler receives it. The deadline of the call is that of the handler's
// context.
type Request struct {
	message  *partywall.Message
	isOneWay bool
}

// Bytes returns the payload of the call. A long payload may lie in the client's memory. The handler
// may read the payload until it returns, and never changes it. It may return the payload as the
// answer.
func (r *Request) Bytes() []byte { return r.message.Bytes()[headerBytes:] }

// IsOneWay reports whether the caller expects no answer to this call.
func (r *Request) IsOneWay() bool { return r.isOneWay }

// A server answers the calls of one stream.
//
//	receive ─┬─ CALL ───▶ run: handler, then ANSWER or ERROR     a goroutine for each handler
//	         │            or wait, or ERROR busy
//	         └─ CANCEL ─▶ the context of the call ends
//
// A server continues to receive while the maximum of handlers runs and the maximum of calls waits,
// so that a CANCEL always reaches it (CALLS 4.1).
type server struct {
	stream  *partywall.Stream
	handler Handler
	config  Config
	ctx     context.Context // of all handlers
	cancel  context.CancelFunc
	// calls counts the calls that run or wait, and the functions that watch their deadlines.
	// [Serve] waits for all of them before it returns.
	calls sync.WaitGroup

	mu      sync.Mutex
	serving serving[*received]
	failure error // why answers cannot be sent
}

// A received is a call that a server has received, and that runs or waits for a handler.
type received struct {
	id      uint64
	request Request
	ctx     context.Context
	cancel  context.CancelFunc
	// unwatch stops the function that watches the call's deadline; nil if the call has no deadline.
	unwatch func() bool
	// isSettled says that the result of the call is decided: sent, about to be sent, or needed by
	// nobody.
	isSettled atomic.Bool
}

// settle marks the result of the call as decided. It returns true to its first caller alone, which
// sends the result.
func (c *received) settle() bool { return c.isSettled.CompareAndSwap(false, true) }

// Serve answers the calls that arrive on the stream, each with the result of the handler. It
// returns once all handlers have returned: nil if the client has finished and every call is
// answered, the error of ctx after its end, or an [*Error] if the stream has ended early. Serve
// closes the stream. If config is nil, it is the default configuration.
func Serve(ctx context.Context, stream *partywall.Stream, handler Handler, config *Config) error {
	s := &server{stream: stream, handler: handler, config: config.withDefaults()}
	s.serving = newServing[*received](s.config)
	s.ctx, s.cancel = context.WithCancel(ctx)
	defer s.cancel()
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() })
	err := s.receiveAll()
	if err != nil {
		// The calls are given up before the stream is reset. A handler that answers after the
		// reset would otherwise take the reset for the reason why the stream has ended.
		s.giveUpAll()
		if isViolation(err) {
			stream.Stop(codeViolation)
			stream.Reset(codeViolation)
		}
	}
	s.calls.Wait()
	stop()
	// The error of Close is ignored, because the stream may be closed already.
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

// receiveAll receives the calls and cancellations of the client until the client has finished its
// direction of the stream; then the error is nil.
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

// arrive handles a call that has come: it runs the handler, keeps the call waiting, or answers that
// the server is busy.
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

// begin makes the context of a call. The call's deadline is leftUs microseconds from now; 0 means
// that it has none.
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

// expire fails a call whose deadline has passed: the client gets an error instead of the answer
// (CALLS 4.4).
func (s *server) expire(call *received) {
	if call.ctx.Err() != context.DeadlineExceeded || !call.settle() {
		return
	}
	if !call.request.isOneWay {
		s.send(frame{kindError, codeDeadline, call.id}, nil)
	}
	s.drop(call.id)
}

// giveUp handles a CANCEL of the client: it ends the context of a call that runs, and removes a
// call that waits. An id that the server no longer knows is ignored, because an answer and a CANCEL
// may cross on their way (CALLS 4.3).
func (s *server) giveUp(id uint64) {
	if call := s.drop(id); call != nil {
		call.settle()
		call.cancel()
	}
}

// drop removes the call with this id if it waits for a handler. If its handler runs, drop returns
// the call.
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

// giveUpAll ends the contexts of all calls that run, and removes the calls that wait for a handler.
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

// handle calls the application's handler. If the handler panics, handle returns an error and logs
// the stack.
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

// sendFailure answers a call with an ERROR frame, whose code and detail are those of the handler's
// error.
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

// finish removes a call whose handler has returned, and runs the handler of the call that has
// waited longest.
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

// release frees the message and the context of a call that neither runs nor waits any more.
func (s *server) release(call *received) {
	if call.unwatch != nil && call.unwatch() {
		s.calls.Done()
	}
	call.cancel()
	call.request.message.Release()
	s.calls.Done()
}

// send sends the answer or the error of a call. For an answer that is too long to send, the client
// gets an ERROR frame with the code of an aborted call.
func (s *server) send(f frame, payload []byte) {
	header := f.encode()
	err := s.stream.SendParts(s.ctx, header[:], payload)
	if errors.Is(err, syscall.EMSGSIZE) {
		header = frame{kindError, codeAborted, f.id}.encode()
		err = s.stream.SendParts(s.ctx, header[:], []byte(err.Error()))
	}
	s.sent(err)
}

// sent ends the server because of err, the error of sending an answer to a call. If the client
// receives no more on this stream, that is no error, because the client has then given up all its
// calls.
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

// SPDX-License-Identifier: MIT OR Apache-2.0

package calls

import (
	"context"
	"sync"
	"time"

	partywall "partywall.test/go"
	"partywall.test/go/internal/fault"
	"partywall.test/go/internal/layout"
)

// A Client makes calls over a stream, which nothing else may use from then on. Any number of
// goroutines may use it. The caller closes a client that it no longer needs.
//
//	Begin ─▶ wait for a slot ─▶ turn to send ─▶ sent ─▶ answered
//	   └ ctx ends: nothing is sent ┘             └ ctx ends: CANCEL
//
// One goroutine of the client receives the answers. Another one, while there are calls to cancel,
// sends their CANCEL frames.
type Client struct {
	stream *partywall.Stream
	// slots holds an element for each call in flight, and so bounds their number. turn holds an
	// element while a call is being sent, so that calls are sent in the order of their ids (CALLS
	// 3.1).
	slots, turn chan struct{}
	over        chan struct{} // is closed with the reason in lost
	received    chan struct{} // is closed once the receiving goroutine has ended
	// cancelling is the context in which CANCEL frames are sent. The function stop ends this
	// context.
	cancelling context.Context
	stop       context.CancelFunc
	cancellers sync.WaitGroup

	mu           sync.Mutex
	last         uint64           // the highest id used
	waiting      map[uint64]*Call // the calls without an answer
	cancels      []uint64         // calls whose CANCEL is to be sent; each still has its slot
	isCancelling bool             // a goroutine sends them
	isClosed     bool
	lost         error
}

// A Call is a call whose request was sent, and whose answer [Call.Wait] returns.
type Call struct {
	client   *Client
	ctx      context.Context
	id       uint64
	result   chan result // has room for one
	isWaited bool
}

type result struct {
	answer *Message
	err    error
}

// NewClient makes a client of calls over the stream. If config is nil, it is the default
// configuration.
func NewClient(stream *partywall.Stream, config *Config) *Client {
	c := &Client{
		stream: stream,
		slots:  make(chan struct{}, config.withDefaults().InFlightMax),
		turn:   make(chan struct{}, 1),
		over:   make(chan struct{}), received: make(chan struct{}),
		waiting: map[uint64]*Call{},
	}
	c.cancelling, c.stop = context.WithCancel(context.Background())
	go c.receiveAll()
	return c
}

// Call makes a call, and waits for the answer, which the caller releases. The server gets the
// deadline of ctx. If ctx ends before the answer, the server is told to give the call up, and the
// error is [context.Canceled], or an [*Error] that wraps [context.DeadlineExceeded].
func (c *Client) Call(ctx context.Context, payload []byte) (*Message, error) {
	call, err := c.Begin(ctx, payload)
	if err != nil {
		return nil, err
	}
	return call.Wait()
}

// Begin makes a call, and returns once the call is sent. Before that it waits while InFlightMax
// calls are in flight, and while there is no room to send. [Call.Wait] waits for the answer, and
// must be called for each call that was begun.
func (c *Client) Begin(ctx context.Context, payload []byte) (*Call, error) {
	if err := c.enter(ctx, c.slots); err != nil {
		return nil, err
	}
	if err := c.enter(ctx, c.turn); err != nil {
		<-c.slots
		return nil, err
	}
	defer func() { <-c.turn }()
	call, err := c.add(ctx)
	if err != nil {
		<-c.slots
		return nil, err
	}
	if err := c.send(ctx, frame{kindCall, timeLeft(ctx), call.id}, payload); err != nil {
		if c.remove(call.id) {
			<-c.slots
		}
		return nil, c.sendError(ctx, err)
	}
	return call, nil
}

// CallOneWay makes a call that has no answer: the caller never learns whether it was handled. It
// returns once the call is sent; ctx bounds the sending alone.
func (c *Client) CallOneWay(ctx context.Context, payload []byte) error {
	if err := c.enter(ctx, c.turn); err != nil {
		return err
	}
	defer func() { <-c.turn }()
	c.mu.Lock()
	err := c.lost
	c.last++
	id := c.last
	c.mu.Unlock()
	if err == nil {
		err = c.send(ctx, frame{kindOneWay, 0, id}, payload)
	}
	return c.sendError(ctx, err)
}

// Done returns a channel that is closed once this client can make no more calls.
func (c *Client) Done() <-chan struct{} { return c.over }

// Err returns the reason why this client can make no more calls, or nil while it can.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// Close ends the client and its stream. Calls without an answer are given up, and fail with an
// error that wraps [net.ErrClosed]. One-way calls that were sent are still handled. Close waits for
// at most a second for room to cancel calls.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.isClosed {
		c.mu.Unlock()
		return errClosed
	}
	c.isClosed = true
	if c.lost == nil {
		for id := range c.waiting {
			c.cancelLater(id)
		}
	}
	calls := c.stopCalls(errClosed)
	c.mu.Unlock()
	fail(calls, errClosed)
	timer := time.AfterFunc(closeTime, c.stop)
	c.cancellers.Wait()
	timer.Stop()
	c.stop()
	err := c.stream.Close()
	<-c.received
	return err
}

// Wait waits for the answer of the call, or for the end of the context with which the call was
// begun. The caller calls Wait once.
func (c *Call) Wait() (*Message, error) {
	if c.isWaited {
		panic("calls: a call is waited for twice")
	}
	c.isWaited = true
	select {
	case r := <-c.result:
		return r.answer, r.err
	case <-c.ctx.Done():
	}
	if c.client.giveUp(c.id) {
		return nil, ended(c.ctx)
	}
	r := <-c.result // it has come meanwhile
	return r.answer, r.err
}

// enter waits for a slot of a call, or for the right to send: it puts an element into a Go channel
// once that has room. It fails if ctx ends first, or the client can make no more calls.
func (c *Client) enter(ctx context.Context, into chan<- struct{}) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	select {
	case into <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	case <-c.over:
		return c.Err()
	}
}

// add registers a new call, so that its answer finds it, and returns the call. The caller has the
// right to send on the stream.
func (c *Client) add(ctx context.Context) (*Call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost != nil {
		return nil, c.lost
	}
	c.last++
	call := &Call{client: c, ctx: ctx, id: c.last, result: make(chan result, 1)}
	c.waiting[call.id] = call
	return call, nil
}

// remove removes a call from those that wait for an answer. The result says whether the call was
// among them.
func (c *Client) remove(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, isWaiting := c.waiting[id]
	delete(c.waiting, id)
	return isWaiting
}

// send sends one frame of the protocol of calls. The caller has the right to send on the stream.
func (c *Client) send(ctx context.Context, f frame, payload []byte) error {
	header := f.encode()
	return c.stream.SendParts(ctx, header[:], payload)
}

// sendError returns the error to report for a call that could not be sent, where err is the error
// of the stream.
func (c *Client) sendError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && err == ctx.Err() {
		return ended(ctx)
	}
	if reason := c.Err(); reason != nil {
		return reason
	}
	failure := lost(err)
	failure.isLost = failure.number != layout.ErrorMessageTooLong
	return failure
}

// giveUp removes a call whose context has ended, and has a CANCEL frame sent for it. The result
// says whether the call was still waiting for its answer.
func (c *Client) giveUp(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, isWaiting := c.waiting[id]; !isWaiting {
		return false
	}
	delete(c.waiting, id)
	if fault.Is("cancel_unsent") {
		return true
	}
	c.cancelLater(id)
	return true
}

// cancelLater queues the CANCEL frame of a call for the goroutine that sends them. The call counts
// as in flight until that goroutine has sent the frame. The caller holds the client's lock.
func (c *Client) cancelLater(id uint64) {
	c.cancels = append(c.cancels, id)
	if !c.isCancelling {
		c.isCancelling = true
		c.cancellers.Go(c.sendCancels)
	}
}

func (c *Client) sendCancels() {
	for {
		c.mu.Lock()
		if len(c.cancels) == 0 {
			c.isCancelling = false
			c.mu.Unlock()
			return
		}
		id := c.cancels[0]
		c.cancels = c.cancels[1:]
		c.mu.Unlock()
		if c.sendCancel(id) != nil {
			// The CANCEL could not be sent: the stream has ended, or the client is closed and there
			// was no room in time. No more calls can be made, so the slots of the remaining calls
			// are not freed.
			return
		}
		<-c.slots
	}
}

func (c *Client) sendCancel(id uint64) error {
	select {
	case c.turn <- struct{}{}:
	case <-c.cancelling.Done():
		return c.cancelling.Err()
	}
	defer func() { <-c.turn }()
	return c.send(c.cancelling, frame{kindCancel, 0, id}, nil)
}

func (c *Client) receiveAll() {
	defer close(c.received)
	for {
		message, err := c.stream.RecvMessage()
		if err != nil {
			c.end(lost(err))
			return
		}
		if err := c.receive(message); err != nil {
			c.end(err)
			c.stream.Stop(codeViolation)
			c.stream.Reset(codeViolation)
			return
		}
	}
}

// receive passes a message of the server, an answer or an error, to its call. It returns an error
// if the message breaks a rule of the protocol.
func (c *Client) receive(message *partywall.Message) error {
	f, err := decode(message.Bytes())
	if err == nil && f.kind != kindAnswer && f.kind != kindError {
		err = violation(layout.ErrorCallRole,
			"the frame with id %d is one of a client: are both sides clients?", f.id)
	}
	if err != nil {
		message.Release()
		return err
	}
	c.mu.Lock()
	call, last := c.waiting[f.id], c.last
	delete(c.waiting, f.id)
	c.mu.Unlock()
	if call == nil {
		message.Release()
		if f.id > last || fault.Is("late_answer_refused") {
			return violation(layout.ErrorCallUnknown,
				"an answer to call %d came, and %d was the last one made", f.id, last)
		}
		return nil // the call was given up (CALLS 3.3)
	}
	<-c.slots
	if f.kind == kindAnswer {
		call.result <- result{answer: &Message{message}}
		return nil
	}
	call.result <- result{err: failed(f.word, message.Bytes()[headerBytes:])}
	message.Release()
	return nil
}

// end makes the client fail: all calls without an answer, and all later calls, fail with reason.
func (c *Client) end(reason error) {
	c.mu.Lock()
	calls := c.stopCalls(reason)
	c.mu.Unlock()
	if !fault.Is("end_silent") {
		fail(calls, reason)
	}
}

// stopCalls makes all later calls of the client fail with reason. It removes and returns the calls
// that wait for an answer. The caller holds the client's lock.
func (c *Client) stopCalls(reason error) map[uint64]*Call {
	if c.lost == nil {
		c.lost = reason
		close(c.over)
	}
	calls := c.waiting
	c.waiting = map[uint64]*Call{}
	return calls
}

func fail(calls map[uint64]*Call, reason error) {
	for _, call := range calls {
		call.result <- result{err: reason}
	}
}

// closeTime is the longest time for which [Client.Close] waits for room to send CANCEL frames.
const closeTime = time.Second

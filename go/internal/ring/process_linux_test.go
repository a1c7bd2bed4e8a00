// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
	"partywall.test/go/internal/sys"
)

// childVariable is the environment variable that makes the test program the second process of a
// test; its value says what that process does.
const childVariable = "PARTYWALL_GO_TEST_CHILD"

// childSocket is the second process's descriptor of its end of the socket between both processes.
const childSocket = 3

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(childVariable) {
	case "":
		os.Exit(m.Run())
	case "echo":
		err = echo()
	case "commit":
		err = commitAndStay()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "second process:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Sizes and offsets in bytes of the regions that the tests with two processes make.
const (
	regionBytes   = 2 * layout.GrainBytes
	ringOffset    = 2 * layout.PageBytes
	releaseOffset = ringOffset + testRing
	slabOffset    = releaseOffset + layout.PageBytes
	slabBytes     = regionBytes - slabOffset
	releaseBytes  = testEntries * mem.WordBytes
)

// An endpoint is one side of a channel between the two processes of a test.
type endpoint struct {
	producer              *Producer
	consumer              *Consumer
	slab                  *Slab
	releaser              *Releaser
	reclaimer             *Reclaimer
	peerSlab              mem.Peer
	records, room         *Sleeper
	wakeRecords, wakeRoom *Waker
	recordsDoorbell       syscall.RawConn
	roomDoorbell          syscall.RawConn
	peerRecords, peerRoom *sys.Eventfd
	files                 [2]*os.File // keep the doorbells open
}

// connect makes a region and two doorbells, and sends their descriptors over the socket. It then
// checks and maps the region of the peer.
func connect(socket int, role uint32) (*endpoint, error) {
	region, err := sys.NewRegion("partywall-test", regionBytes)
	if err != nil {
		return nil, err
	}
	e := &endpoint{}
	offered := []int{region.Descriptor()}
	var connections [2]syscall.RawConn
	for i := range connections {
		doorbell, err := sys.NewEventfd()
		if err != nil {
			return nil, err
		}
		offered = append(offered, doorbell.Descriptor())
		e.files[i] = os.NewFile(uintptr(doorbell.Descriptor()), "doorbell")
		if err := e.files[i].SetReadDeadline(time.Now().Add(deadline)); err != nil {
			return nil, err
		}
		if connections[i], err = e.files[i].SyscallConn(); err != nil {
			return nil, err
		}
	}
	e.recordsDoorbell, e.roomDoorbell = connections[0], connections[1]
	region.Memory().Write(0, header(role).Append(nil))
	if _, err := sys.Send(socket, []byte("r"), offered...); err != nil {
		return nil, err
	}
	message, err := awaitMessage(socket)
	if err != nil || len(message.Descriptors) != len(offered) {
		return nil, fmt.Errorf("%d descriptors, %w", len(message.Descriptors), err)
	}
	mapped, err := sys.MapPeer(message.Descriptors[0], regionBytes, regionBytes)
	if err != nil {
		return nil, err
	}
	copied := make([]byte, layout.RegionHeaderBytes)
	mapped.Memory().Copy(copied, 0)
	want := layout.Expectation{
		Size: regionBytes, SessionID: testSession, Role: 1 - role, PeerBlocksMax: testEntries,
	}
	if _, err := layout.ParseRegion(copied, want); err != nil {
		return nil, err
	}
	e.peerRecords = sys.EventfdOf(message.Descriptors[1])
	e.peerRoom = sys.EventfdOf(message.Descriptors[2])
	e.use(region.Memory(), mapped.Memory())
	return e, nil
}

// header returns the header of the region that the side with this role makes.
func header(role uint32) layout.Region {
	return layout.Region{
		Size:           regionBytes,
		RingOffset:     ringOffset,
		RingSize:       testRing,
		ReleaseOffset:  releaseOffset,
		ReleaseEntries: testEntries,
		SlabOffset:     slabOffset,
		SlabSize:       slabBytes,
		SessionID:      testSession,
		OwnerPID:       uint32(os.Getpid()),
		Role:           role,
		Service:        layout.ServiceChannel,
	}
}

// testSession is the session id of every connection between the two processes of a test.
var testSession = [16]byte([]byte("0123456789abcdef"))

// use makes those objects of the endpoint that write this side's region and read the peer's region.
func (e *endpoint) use(own mem.Own, peer mem.Peer) {
	control := own.Part(layout.ControlOffset, layout.PageBytes)
	peerControl := peer.Part(layout.ControlOffset, layout.PageBytes)
	e.producer = NewProducer(own.Part(ringOffset, testRing), peerControl)
	e.consumer = NewConsumer(peer.Part(ringOffset, testRing), control)
	e.slab = NewSlab(testEntries)
	e.slab.AddSegment(0, own.Part(slabOffset, slabBytes))
	e.peerSlab = peer.Part(slabOffset, slabBytes)
	e.releaser = NewReleaser(own.Part(releaseOffset, releaseBytes), control)
	e.reclaimer = NewReclaimer(peer.Part(releaseOffset, releaseBytes), peerControl)
	e.records, e.room = NewSleeper(control, Records), NewSleeper(control, Room)
	e.wakeRecords, e.wakeRoom = NewWaker(peerControl, Records), NewWaker(peerControl, Room)
}

// awaitMessage waits until one byte comes over the socket, and returns it with the descriptors that
// came with it.
func awaitMessage(socket int) (sys.Message, error) {
	end := time.Now().Add(deadline)
	for time.Now().Before(end) {
		message, err := sys.Receive(socket, make([]byte, 1))
		if !errors.Is(err, sys.ErrWouldBlock) {
			return message, err
		}
		poll := []unix.PollFd{{Fd: int32(socket), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, 1000); err != nil && !errors.Is(err, unix.EINTR) {
			return message, err
		}
	}
	return sys.Message{}, errors.New("no message in time")
}

// wait sleeps until ready returns true. The eventfd of the doorbell is never read, because Go's
// poller reacts to edges (SPEC 6.2).
func wait(sleeper *Sleeper, doorbell syscall.RawConn, ready func() bool) error {
	err := doorbell.Read(func(uintptr) bool {
		sleeper.Arm(false)
		return ready()
	})
	sleeper.Disarm()
	return err
}

func (e *endpoint) notify(wake Wake, doorbell *sys.Eventfd) error {
	if wake != WakeNotify {
		return nil
	}
	return doorbell.Notify()
}

// send publishes a message: a short one as DATA in the ring, a long one as BLOB in a block.
func (e *endpoint) send(payload []byte) error {
	kind, body := layout.KindData, payload
	if uint64(len(payload)) > e.producer.PayloadMax() {
		block, err := e.reserveBlock(uint64(len(payload)))
		if err != nil {
			return err
		}
		copy(block.Bytes(), payload)
		kind, body = layout.KindBlob, e.slab.Commit(block).Append(nil)
	}
	for {
		err := e.producer.Append(kind, 0, body)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrFull) {
			return err
		}
		err = wait(e.room, e.roomDoorbell, func() bool {
			hasRoom, err := e.producer.HasRoom(uint64(len(body)))
			return hasRoom || err != nil
		})
		if err != nil {
			return fmt.Errorf("waiting for room: %w", err)
		}
	}
	e.producer.Commit()
	return e.notify(e.wakeRecords.Check(), e.peerRecords)
}

// reserveBlock reserves a block of n bytes. If no memory is free for the block, reserveBlock waits
// until the peer has returned blocks.
func (e *endpoint) reserveBlock(n uint64) (Block, error) {
	for {
		for {
			id, isThere, err := e.reclaimer.Next(e.slab.InFlight())
			if err != nil {
				return Block{}, err
			}
			if !isThere {
				break
			}
			if err := e.slab.Reclaim(id); err != nil {
				return Block{}, err
			}
		}
		if block, isThere := e.slab.Reserve(n); isThere {
			return block, nil
		}
		if err := wait(e.room, e.roomDoorbell, e.reclaimer.HasReturned); err != nil {
			return Block{}, fmt.Errorf("waiting for a block: %w", err)
		}
	}
}

// receive returns the next message, or false after the record CLOSE_WRITE.
func (e *endpoint) receive() ([]byte, bool, error) {
	for {
		header, isThere, err := e.consumer.Peek()
		if err != nil {
			return nil, false, err
		}
		if isThere {
			return e.take(header)
		}
		e.consumer.Report()
		if err := e.notify(e.wakeRoom.Check(), e.peerRoom); err != nil {
			return nil, false, err
		}
		if err := wait(e.records, e.recordsDoorbell, e.consumer.IsReady); err != nil {
			return nil, false, fmt.Errorf("waiting for records: %w", err)
		}
	}
}

// take returns the message of a record and moves past the record. It returns false for the record
// CLOSE_WRITE.
func (e *endpoint) take(header layout.Header) ([]byte, bool, error) {
	message := make([]byte, header.Len)
	e.consumer.Copy(message, header, 0)
	e.consumer.Advance(header)
	switch header.Kind {
	case layout.KindCloseWrite:
		return nil, false, nil
	case layout.KindBlob:
		blob, err := layout.ParseBlob(message)
		if err != nil {
			return nil, false, err
		}
		if blob.Offset > slabBytes || blob.Length > slabBytes-blob.Offset {
			return nil, false, layout.ViolationBody
		}
		message = make([]byte, blob.Length)
		e.peerSlab.Copy(message, blob.Offset)
		e.releaser.Release(blob.Block)
	}
	if e.consumer.IsReportDue() {
		e.consumer.Report()
	}
	return message, true, e.notify(e.wakeRoom.Check(), e.peerRoom)
}

func (e *endpoint) close() error {
	e.producer.Close(0)
	return e.notify(e.wakeRecords.Check(), e.peerRecords)
}

// echo is what the second process of a test does: it sends each message of the first process back.
func echo() error {
	e, err := connect(childSocket, layout.RoleConnector)
	if err != nil {
		return err
	}
	for {
		message, isThere, err := e.receive()
		if err != nil {
			return err
		}
		if !isThere {
			return e.close()
		}
		if err := e.send(message); err != nil {
			return err
		}
	}
}

// committed is how many messages the second process of a test publishes before it is killed.
const committed = 20

// commitAndStay is what the second process of a test does: it publishes messages, reports this on
// the socket, and waits until it is killed.
func commitAndStay() error {
	e, err := connect(childSocket, layout.RoleConnector)
	if err != nil {
		return err
	}
	for i := range committed {
		if err := e.send([]byte{byte(i)}); err != nil {
			return err
		}
	}
	// The record of this batch is never committed, so the first process must not find it.
	if err := e.producer.Append(layout.KindData, 0, []byte("open")); err != nil {
		return err
	}
	if _, err := sys.Send(childSocket, []byte("c")); err != nil {
		return err
	}
	_, err = awaitMessage(childSocket)
	return err
}

// startPeer starts the second process of a test. It returns the command, and this process's ends of
// the channel and of the socket.
func startPeer(t *testing.T, mode string) (*exec.Cmd, *endpoint, int) {
	t.Helper()
	sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	child := os.NewFile(uintptr(sockets[1]), "control socket")
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), childVariable+"="+mode)
	command.ExtraFiles = []*os.File{child}
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	child.Close()
	t.Cleanup(func() { unix.Close(sockets[0]) })
	e, err := connect(sockets[0], layout.RoleAcceptor)
	if err != nil {
		t.Fatal(err)
	}
	return command, e, sockets[0]
}

func TestSecondProcessEchoesMessages(t *testing.T) {
	command, e, _ := startPeer(t, "echo")
	lengths := []int{0, 1, 48, 49, 1008, 1009, 5000, 64, 60000}
	for i := range 3000 {
		message := bytes.Repeat([]byte{byte(i)}, lengths[i%len(lengths)])
		if err := e.send(message); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		// After each third message, the test receives the echoes of the last three.
		if i%3 != 2 {
			continue
		}
		for j := i - 2; j <= i; j++ {
			want := bytes.Repeat([]byte{byte(j)}, lengths[j%len(lengths)])
			got, isThere, err := e.receive()
			if err != nil || !isThere || !bytes.Equal(got, want) {
				t.Fatalf("answer %d: %d bytes, want %d: %v", j, len(got), len(want), err)
			}
		}
	}
	if err := e.close(); err != nil {
		t.Fatal(err)
	}
	if message, isThere, err := e.receive(); isThere || err != nil {
		t.Errorf("after the end: %d bytes, %v", len(message), err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("the second process failed: %v", err)
	}
}

func TestCommittedRecordsOutliveKilledProcess(t *testing.T) {
	command, e, socket := startPeer(t, "commit")
	if _, err := awaitMessage(socket); err != nil {
		t.Fatal(err)
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err == nil {
		t.Fatal("a process that was killed ended well")
	}
	for i := range committed {
		message, isThere, err := e.receive()
		if err != nil || !isThere || !bytes.Equal(message, []byte{byte(i)}) {
			t.Fatalf("message %d is %v, %v", i, message, err)
		}
	}
	if _, isThere, err := e.consumer.Peek(); isThere || err != nil {
		t.Errorf("a record that was not committed, or %v", err)
	}
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package sys

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childVariable is the environment variable that makes this test program the second process of a
// test; see [TestMain].
const childVariable = "PARTYWALL_GO_TEST_CHILD"

// deadline is the longest time that a test of sockets waits for an expected event.
const deadline = 20 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is the second process of a test. It sends a byte with its own pidfd over descriptor 3, and
// ends when the first process hangs up.
func child() error {
	const socket = 3
	pidfd, err := OpenPidfd(os.Getpid())
	if err != nil {
		return err
	}
	if _, err := Send(socket, []byte("c"), pidfd.Descriptor()); err != nil {
		return err
	}
	if err := waitReadable(socket); err != nil {
		return err
	}
	if _, err := Receive(socket, make([]byte, 1)); !errors.Is(err, ErrHungUp) {
		return fmt.Errorf("the parent did not hang up: %v", err)
	}
	return nil
}

// waitReadable waits until the descriptor is readable, at most until the deadline.
func waitReadable(descriptor int) error {
	end := time.Now().Add(deadline)
	for time.Now().Before(end) {
		poll := []unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}}
		ready, err := unix.Poll(poll, 1000)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if ready > 0 {
			return nil
		}
	}
	return errors.New("the descriptor did not become readable in time")
}

func socketPair(t *testing.T) (int, int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closeDescriptor(pair[0])
		closeDescriptor(pair[1])
	})
	return pair[0], pair[1]
}

// startChild starts the second process of a test. It returns the command, this process's end of the
// socket between both, and whether the kernel adds pidfds. The socket passes credentials.
func startChild(t *testing.T) (*exec.Cmd, *os.File, bool) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	own, its := os.NewFile(uintptr(pair[0]), "own"), os.NewFile(uintptr(pair[1]), "child")
	if err := PassCredentials(pair[0]); err != nil {
		t.Fatal(err)
	}
	err = PassPidfd(pair[0], true)
	if err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		t.Fatal(err)
	}
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), childVariable+"=1")
	command.ExtraFiles = []*os.File{its}
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	its.Close()
	return command, own, err == nil
}

func TestSecondProcessIsNamedByCredentialsAndPidfd(t *testing.T) {
	command, own, passesPidfd := startChild(t)
	socket := int(own.Fd())
	if err := waitReadable(socket); err != nil {
		t.Fatal(err)
	}
	message, err := Receive(socket, make([]byte, 16))
	if err != nil {
		t.Fatal(err)
	}
	defer message.CloseDescriptors()
	want := Credentials{
		PID: int32(command.Process.Pid), UID: uint32(os.Getuid()), GID: uint32(os.Getgid()),
	}
	if message.Credentials == nil || *message.Credentials != want {
		t.Errorf("credentials are %+v, want %+v", message.Credentials, want)
	}
	if message.Bytes != 1 || len(message.Descriptors) != 1 {
		t.Fatalf("%d bytes, %d descriptors", message.Bytes, len(message.Descriptors))
	}
	named := []*Pidfd{PidfdOf(message.Descriptors[0])}
	if passesPidfd {
		if message.Pidfd == nil {
			t.Fatal("the kernel gave no pidfd of the sender")
		}
		named = append(named, message.Pidfd)
	}
	for _, pidfd := range named {
		if pid, err := pidfd.PID(); err != nil || pid != command.Process.Pid {
			t.Errorf("the pidfd names process %d, %v; want %d", pid, err, command.Process.Pid)
		}
		if ended, err := pidfd.IsEnded(); err != nil || ended {
			t.Errorf("the sender is alive: ended %v, %v", ended, err)
		}
	}
	own.Close()
	for _, pidfd := range named {
		if err := waitReadable(pidfd.Descriptor()); err != nil {
			t.Errorf("the end of the process: %v", err)
		}
		if ended, err := pidfd.IsEnded(); err != nil || !ended {
			t.Errorf("the sender is dead: ended %v, %v", ended, err)
		}
	}
	if err := command.Wait(); err != nil {
		t.Errorf("the peer failed: %v", err)
	}
	if pid, err := named[0].PID(); err != nil || pid != -1 {
		t.Errorf("a pidfd of a process that was waited for names %d, %v; want -1", pid, err)
	}
}

func TestOtherDescriptorIsNoPidfd(t *testing.T) {
	eventfd, err := NewEventfd()
	if err != nil {
		t.Fatal(err)
	}
	defer eventfd.Close()
	if pid, err := PidfdOf(eventfd.Descriptor()).PID(); err == nil {
		t.Errorf("an eventfd names process %d", pid)
	}
}

func TestSocketWithoutOptionBringsNoCredentials(t *testing.T) {
	a, b := socketPair(t)
	if _, err := Send(a, []byte("x")); err != nil {
		t.Fatal(err)
	}
	message, err := Receive(b, make([]byte, 8))
	if err != nil || message.Credentials != nil || message.Pidfd != nil {
		t.Errorf("message %+v, %v", message, err)
	}
}

func TestDescriptorsComeInOrderAndAreNotInherited(t *testing.T) {
	a, b := socketPair(t)
	first, second := newRegion(t, GrainBytes), newRegion(t, 2*GrainBytes)
	sent, err := Send(a, []byte("two"), first.Descriptor(), second.Descriptor())
	if err != nil || sent != 3 {
		t.Fatalf("sent %d, %v", sent, err)
	}
	into := make([]byte, 8)
	message, err := Receive(b, into)
	if err != nil || string(into[:message.Bytes]) != "two" || len(message.Descriptors) != 2 {
		t.Fatalf("message %+v, %v", message, err)
	}
	for i, descriptor := range message.Descriptors {
		size := uint64(i+1) * GrainBytes
		mapped, err := MapPeer(descriptor, size, size)
		if err != nil {
			t.Fatalf("descriptor %d: %v", i, err)
		}
		mapped.Unmap()
		flags, err := unix.FcntlInt(uintptr(descriptor), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d: flags %#x, %v", i, flags, err)
		}
	}
	descriptors := message.Descriptors
	message.CloseDescriptors()
	for _, descriptor := range descriptors {
		_, err := unix.FcntlInt(uintptr(descriptor), unix.F_GETFD, 0)
		if !errors.Is(err, unix.EBADF) {
			t.Errorf("descriptor %d is still open: %v", descriptor, err)
		}
	}
}

func TestDescriptorBeyondLimitIsReported(t *testing.T) {
	a, b := socketPair(t)
	if _, err := Send(a, []byte("x"), a); err != nil {
		t.Fatal(err)
	}
	free, err := unix.Dup(a)
	if err != nil {
		t.Fatal(err)
	}
	closeDescriptor(free)
	var former unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &former); err != nil {
		t.Fatal(err)
	}
	lowered := unix.Rlimit{Cur: uint64(free), Max: former.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lowered); err != nil {
		t.Fatal(err)
	}
	message, err := Receive(b, make([]byte, 1))
	if restored := unix.Setrlimit(unix.RLIMIT_NOFILE, &former); restored != nil {
		t.Fatal(restored)
	}
	defer message.CloseDescriptors()
	if err != nil || !message.IsTruncated || len(message.Descriptors) != 0 {
		t.Errorf("message %+v, %v", message, err)
	}
}

func TestSocketNeverWaits(t *testing.T) {
	a, b := socketPair(t)
	if _, err := Receive(b, make([]byte, 1)); !errors.Is(err, ErrWouldBlock) {
		t.Errorf("receive from an empty socket: %v", err)
	}
	block := make([]byte, 1<<16)
	var err error
	for range 10000 {
		if _, err = Send(a, block); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrWouldBlock) {
		t.Errorf("send to a full socket: %v", err)
	}
}

func TestHangUpIsReportedAfterLastByte(t *testing.T) {
	a, b := socketPair(t)
	if err := PassCredentials(b); err != nil {
		t.Fatal(err)
	}
	if _, err := Send(a, []byte("last")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Shutdown(a, unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	message, err := Receive(b, make([]byte, 8))
	if err != nil || message.Bytes != 4 {
		t.Errorf("message %+v, %v", message, err)
	}
	if _, err := Receive(b, make([]byte, 8)); !errors.Is(err, ErrHungUp) {
		t.Errorf("receive after the end: %v", err)
	}
	if _, err := Send(b, []byte("x")); !errors.Is(err, ErrHungUp) {
		t.Errorf("send after the end: %v", err)
	}
}

func TestMessageOfNoBytesIsRefused(t *testing.T) {
	a, _ := socketPair(t)
	if _, err := Send(a, nil, a); err == nil {
		t.Error("a descriptor without a byte was sent")
	}
	if _, err := Receive(a, nil); err == nil || errors.Is(err, ErrHungUp) {
		t.Errorf("receive of no bytes: %v", err)
	}
}

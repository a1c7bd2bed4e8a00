// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"partywall.test/go/internal/layout"
)

// codeOf returns the code of an error of this package, or 0 for any other error.
func codeOf(err error) ErrorCode {
	var failure *Error
	if errors.As(err, &failure) {
		return failure.ErrorCode()
	}
	return 0
}

func TestAddressTexts(t *testing.T) {
	long := fmt.Sprintf("%0108d", 1)
	cases := []struct {
		text string
		code ErrorCode
	}{
		{"unix:/run/a.sock", 0},
		{"unix:./@a", 0},
		{"unix:@name", 0},
		{"tcp:127.0.0.1:80", 0},
		{"tcp:[::1]:0", 0},
		{"tcp:localhost:65535", 0},
		{"", 301},
		{"unix:", 301},
		{"unix:@", 301},
		{"unix:a\x00b", 301},
		{"unix:" + long, 302},
		{"unix:@" + long, 302},
		{"tcp:localhost", 301},
		{"tcp::80", 301},
		{"tcp:localhost:65536", 301},
		{"tcp:localhost:http", 301},
		{"udp:localhost:1", 301},
		{"/run/a.sock", 301},
	}
	for _, c := range cases {
		address, err := ParseAddr(c.text)
		if codeOf(err) != c.code || (err == nil) != (c.code == 0) {
			t.Errorf("%q: %v, want code %d", c.text, err, c.code)
		}
		if err == nil && (address.String() != c.text || address.Network() != "partywall") {
			t.Errorf("%q is written as %s %q", c.text, address.Network(), address)
		}
	}
}

func TestImpossibleSettingsAreRefused(t *testing.T) {
	for name, config := range map[string]Config{
		"ring of no power of two":  {RingBytes: 5000},
		"ring that is too small":   {RingBytes: 2048},
		"blocks of no power":       {PeerBlocksMax: 9},
		"message beyond a quarter": {RingBytes: 4096, InlineMax: 1009},
		"too much memory":          {MemoryMax: 1 << 50},
		"negative handshakes":      {HandshakesMax: -1},
	} {
		if _, err := ListenChannel("unix:@never", &config); codeOf(err) != 13 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDialErrorsHaveCodes(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stale := staleSocket(t, directory)
	for _, c := range []struct {
		address string
		code    ErrorCode
	}{
		{"unix:" + filepath.Join(directory, "nothing"), 332},
		{"unix:" + stale, 333},
		{"unix:" + file, 334},
		{"unix:@partywall-test-of-no-listener", 333},
		{"nonsense", 301},
	} {
		if _, err := DialChannel(testContext(t), c.address, nil); codeOf(err) != c.code {
			t.Errorf("%s: %v, want code %d", c.address, err, c.code)
		}
	}
}

// staleSocket returns the path of a socket file on which nobody listens.
func staleSocket(t *testing.T, directory string) string {
	t.Helper()
	path := filepath.Join(directory, "stale")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStalePathIsTakenOver(t *testing.T) {
	path := staleSocket(t, t.TempDir())
	listener, err := ListenChannel("unix:"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket file has %v, %v", info.Mode(), err)
	}
	if _, err := ListenChannel("unix:"+path, nil); codeOf(err) != 311 {
		t.Errorf("a living listener's path: %v", err)
	}
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket file stays: %v", err)
	}
	if err := listener.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := listener.Accept(testContext(t)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accepting after Close: %v", err)
	}
}

func TestOtherFilesStay(t *testing.T) {
	directory := t.TempDir()
	path := filepath.Join(directory, "file")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenChannel("unix:"+path, nil); codeOf(err) != 312 {
		t.Errorf("listening on a file: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "text" {
		t.Errorf("the file has %q, %v", text, err)
	}
	missing := "unix:" + filepath.Join(directory, "no", "directory")
	if _, err := ListenChannel(missing, nil); codeOf(err) != 315 {
		t.Errorf("no directory: %v", err)
	}
	// Another listener has replaced the socket file. When the first listener closes, it must not
	// remove the file of the other.
	path = filepath.Join(directory, "s")
	first, err := ListenChannel("unix:"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := ListenChannel("unix:"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the file of the second listener: %v", err)
	}
}

func TestOtherHostsAreRefusedByDefault(t *testing.T) {
	for _, address := range []string{"tcp:0.0.0.0:0", "tcp:[::]:0"} {
		if _, err := ListenChannel(address, nil); codeOf(err) != 304 {
			t.Errorf("%s: %v", address, err)
		}
	}
	listener, err := ListenChannel("tcp:0.0.0.0:0", &Config{AllowRemote: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
}

func TestPeerThatIsNotAdmittedIsRefused(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux brings credentials")
	}
	refused := make(chan error, 1)
	config := Config{
		Admit:     func(peer Peer) error { return fmt.Errorf("%v is not welcome", peer) },
		OnRefused: func(err error) { refused <- err },
	}
	listener := listen(t, way{network: "unix", config: config})
	_, err := DialChannel(testContext(t), listener.Addr().String(), nil)
	var failure *Error
	if !errors.As(err, &failure) || failure.ErrorCode() != 205 {
		t.Fatalf("dialing ends with %v", err)
	}
	if code, ok := failure.RejectCode(); !ok || code != 2 {
		t.Errorf("the peer refused with %d, %v", code, ok)
	}
	if err := <-refused; codeOf(err) != 206 {
		t.Errorf("the listener refused with %v", err)
	}
}

func TestAbstractNameAdmitsOwnUser(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has abstract names")
	}
	address := fmt.Sprintf("unix:@partywall-go-test-%d", os.Getpid())
	listener, err := ListenChannel(address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialed, err := DialChannel(testContext(t), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := dialed.Close(); err != nil {
		t.Error(err)
	}
}

func TestTransportsThatExcludeEachOther(t *testing.T) {
	shared, socket := Config{Transport: TransportSharedMemory}, Config{Transport: TransportSocket}
	listener := listen(t, way{network: "unix", config: socket})
	_, err := DialChannel(testContext(t), listener.Addr().String(), &shared)
	var failure *Error
	if !errors.As(err, &failure) || failure.ErrorCode() != 208 && failure.ErrorCode() != 205 {
		t.Errorf("dialing ends with %v", err)
	}
}

// Peers connect to a listener and send nothing. They hold up no other peer: while other peers wait,
// the listener refuses the oldest of the silent ones.
func TestSilentPeersDoNotBlockListener(t *testing.T) {
	config := Config{HandshakesMax: 2, HandshakeTimeout: testTime}
	w := way{network: "unix", config: config, isShared: runtime.GOOS == "linux"}
	listener := listen(t, w)
	_, path, _ := cutAddress(listener.Addr().String())
	for range 4 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	connect(t, listener, w)
}

func cutAddress(text string) (network, name string, ok bool) {
	address, err := ParseAddr(text)
	return address.address.Network, address.address.Name, err == nil
}

func TestHandshakeEndsByItsDeadline(t *testing.T) {
	// The peer of the dialer is a listener that accepts sockets, and sends nothing.
	silent, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	address := "unix:" + silent.Addr().String()
	// On a busy machine the time may pass while the dialer still connects. It then has another
	// error, and the next dialer has more time.
	for timeout := 20 * time.Millisecond; timeout < testTime; timeout *= 2 {
		_, err = DialChannel(testContext(t), address, &Config{HandshakeTimeout: timeout})
		if codeOf(err) != ErrorCode(layout.ErrorConnectingTimedOut) {
			break
		}
	}
	if codeOf(err) != 201 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the timeout ends it with %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := DialChannel(ctx, address, nil)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelling ends it with %v", err)
	}
}

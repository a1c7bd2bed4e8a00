// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"partywall.test/go/internal/layout"
)

// says fails the test unless err has this number, and its text contains all of things.
func says(t *testing.T, err error, number layout.ErrorNumber, things ...string) {
	t.Helper()
	var of *Error
	if !errors.As(err, &of) || of.ErrorCode() != ErrorCode(number) {
		t.Errorf("%v is no error with the number %d", err, number)
		return
	}
	for _, thing := range things {
		if !strings.Contains(err.Error(), thing) {
			t.Errorf("%q does not say %q", err, thing)
		}
	}
}

func TestErrorsOfAddressesSayWhatToDo(t *testing.T) {
	ctx, directory := testContext(t), t.TempDir()
	dial := func(address string) error {
		_, err := DialChannel(ctx, address, nil)
		return err
	}
	listen := func(address string) error {
		_, err := ListenChannel(address, nil)
		return err
	}
	file := filepath.Join(directory, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(directory, "missing")
	says(t, dial("unix:"+missing), layout.ErrorNoSocket, missing, "is the server running")
	says(t, dial("unix:"+file), layout.ErrorConnectingToAFile, file, "is the path right?")
	says(t, listen("unix:"+file), layout.ErrorListeningOnAFile, file, "move it away")
	says(t, listen("unix:"+missing+"/x"), layout.ErrorNoDirectory, missing, "create it first")
	says(t, listen("tcp:0.0.0.0:0"), layout.ErrorNotLoopback, "Config.AllowRemote")
	says(t, dial("localhost:80"), layout.ErrorAddressSyntax, "unix:/path", "tcp:host:port")

	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	says(t, listen("tcp:"+used.Addr().String()), layout.ErrorAddressInUse, "choose another address")

	dead := filepath.Join(directory, "dead")
	left, err := net.Listen("unix", dead)
	if err != nil {
		t.Fatal(err)
	}
	says(t, listen("unix:"+dead), layout.ErrorAddressInUse, dead, "choose another path")
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	says(t, dial("unix:"+dead), layout.ErrorNoListener, dead, "start the server")
}

func TestErrorOfTheWrongServiceNamesBoth(t *testing.T) {
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	refused := make(chan error, 1)
	listener, err := ListenSession(address, &Config{OnRefused: func(err error) { refused <- err }})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, err = DialChannel(testContext(t), address, nil)
	says(t, err, layout.ErrorRefusedByThePeer, "offers sessions, not channels")
	says(t, <-refused, layout.ErrorService, "offers sessions, not channels")
}

func TestErrorOfASettingNamesIt(t *testing.T) {
	for setting, config := range map[string]*Config{
		"Transport":    {Transport: TransportSocket + 1},
		"Trust":        {Trust: TrustNobody + 1},
		"Wait":         {Wait: WaitPark + 1},
		"BackPressure": {BackPressure: BackPressureOverflow + 1},
		"RingBytes":    {RingBytes: 5},
	} {
		_, err := ListenChannel("unix:"+filepath.Join(t.TempDir(), "s"), config)
		says(t, err, layout.ErrorSetting, "Config."+setting)
	}
}

func TestDialEndsWithTheErrorOfItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, address := range []string{"unix:" + filepath.Join(t.TempDir(), "s"), "tcp:127.0.0.1:1"} {
		if _, err := DialChannel(ctx, address, nil); err != context.Canceled {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestNilDialerIsAnError(t *testing.T) {
	var dialer *Dialer
	_, err := dialer.DialContext(testContext(t), "", "unix:/run/app.sock")
	says(t, err, layout.ErrorSetting, "the Dialer is nil")
}

// After CloseWrite a channel still receives. Until the channel is closed, the error of Send says
// that it still receives.
func TestSendAfterCloseWriteIsAnErrorOfItsOwn(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		dialed, accepted := pair(t, w)
		memory, err := dialed.Reserve(100)
		if err != nil {
			t.Fatal(err)
		}
		if err := dialed.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		_, reserving := dialed.Reserve(100)
		for _, err := range []error{
			dialed.Send([]byte("x")), dialed.TrySend([]byte("x")), reserving, memory.Commit(100),
		} {
			says(t, err, layout.ErrorStreamFinishedHere, "still receives")
			if !errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed) {
				t.Errorf("%v is not EPIPE alone", err)
			}
		}
		if err := accepted.Send([]byte("y")); err != nil {
			t.Fatal(err)
		}
		if n, err := dialed.Recv(make([]byte, 1)); n != 1 || err != nil {
			t.Fatalf("received %d bytes, %v", n, err)
		}
		if err := memory.Commit(100); !strings.Contains(err.Error(), "committed or aborted") {
			t.Errorf("a second Commit: %v", err)
		}
		if err := dialed.Close(); err != nil {
			t.Fatal(err)
		}
		err = dialed.Send([]byte("x"))
		if says(t, err, layout.ErrorSessionClosedHere); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

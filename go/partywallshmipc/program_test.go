// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallshmipc

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testTime is the longest time that a test waits for one event.
const testTime = 30 * time.Second

// The import path of shmipc-go in the program greeter, and the path of this package, which replaces
// it.
const (
	theirImport = `"github.com/cloudwego/shmipc-go"`
	ourImport   = `shmipc "partywall.test/go/partywallshmipc"`
)

// buildGreeter compiles the program greeter twice, with the import of shmipc-go and with that of
// this package. It returns the paths of the two executables.
func buildGreeter(t *testing.T) (theirs, ours string) {
	t.Helper()
	directory := t.TempDir()
	source, err := os.ReadFile("testdata/greeter/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(source, []byte(theirImport)) != 1 {
		t.Fatalf("the program does not import %s once", theirImport)
	}
	build := func(name, importLine string) string {
		path := filepath.Join(directory, name+".go")
		text := bytes.Replace(source, []byte(theirImport), []byte(importLine), 1)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		program := filepath.Join(directory, name)
		output, err := exec.Command("go", "build", "-o", program, path).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, output)
		}
		return program
	}
	return build("theirs", theirImport), build("ours", ourImport)
}

// startGreeter starts the program greeter as a server, and waits until it listens. Closing the
// returned writer ends the server.
func startGreeter(t *testing.T, program, path string) (*exec.Cmd, io.Closer) {
	t.Helper()
	server := exec.Command(program, "server", path)
	server.Stderr = os.Stderr
	input, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	deadline := time.AfterFunc(testTime, func() { _ = server.Process.Kill() })
	defer deadline.Stop()
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if lines.Text() == "listens" {
			go func() {
				for lines.Scan() { // shmipc-go writes its log there
				}
			}()
			return server, input
		}
	}
	t.Fatal("the server does not listen")
	return nil, nil
}

// mustGreet runs the program greeter as a client until it ends, and fails the test if it fails.
func mustGreet(t *testing.T, program, path, memory string, count int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	output, err := exec.CommandContext(ctx, program, "client", path, memory,
		fmt.Sprint(count)).CombinedOutput()
	if err != nil || !strings.Contains(string(output), fmt.Sprintf("greeted %d\n", count)) {
		t.Errorf("the client ends with %v\n%s", err, output)
	}
}

// The program greeter, compiled with shmipc-go and with this package, is run as server and as
// client in all pairs. Each pair works, except a client of this package with a server of shmipc-go.
func TestProgramMovesByItsImport(t *testing.T) {
	theirs, ours := buildGreeter(t)
	for _, c := range []struct{ name, server, client string }{
		{"theirs to theirs", theirs, theirs},
		{"theirs to ours", ours, theirs},
		{"ours to ours", ours, ours},
	} {
		for _, memory := range []string{"memfd", "file"} {
			t.Run(c.name+", "+memory, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "s")
				t.Cleanup(func() { removeTheirMemory(t, path) })
				server, input := startGreeter(t, c.server, path)
				mustGreet(t, c.client, path, memory, 2000)
				if err := input.Close(); err != nil {
					t.Fatal(err)
				}
				if err := server.Wait(); err != nil {
					t.Errorf("the server ends with %v", err)
				}
				if _, err := os.Lstat(path); !os.IsNotExist(err) {
					t.Errorf("the socket file stays behind: %v", err)
				}
			})
		}
	}
}

// removeTheirMemory removes the files of shared memory that a client of shmipc-go has left behind.
func removeTheirMemory(t *testing.T, path string) {
	pattern := "/dev/shm/partywall_test_" + strings.ReplaceAll(path, "/", "_") + "*"
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Error(err)
	}
	for _, file := range files {
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	}
}

func TestSessionManagerReachesTheNextServer(t *testing.T) {
	_, ours := buildGreeter(t)
	path := filepath.Join(t.TempDir(), "s")
	server, _ := startGreeter(t, ours, path)
	config := DefaultSessionManagerConfig()
	config.Network, config.Address = "unix", path
	manager, err := NewSessionManager(config)
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	if err := greetOnce(manager); err != nil {
		t.Fatal(err)
	}
	held, err := manager.GetStream()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := held.BufferReader().ReadBytes(1)
		ended <- err
	}()
	_ = server.Process.Kill()
	_ = server.Wait()
	if err := <-ended; err != ErrStreamClosed && err != ErrSessionShutdown {
		t.Errorf("a read from a killed server ends with %v", err)
	}
	manager.PutBack(held)
	startGreeter(t, ours, path)
	deadline := time.Now().Add(testTime)
	for err = greetOnce(manager); err != nil && time.Now().Before(deadline); {
		err = greetOnce(manager)
	}
	if err != nil {
		t.Errorf("the manager does not reach the next server: %v", err)
	}
}

// greetOnce sends one greeting to a server of the program greeter.
func greetOnce(manager *SessionManager) error {
	stream, err := manager.GetStream()
	if err != nil {
		return err
	}
	defer manager.PutBack(stream)
	if err := stream.BufferWriter().WriteString("client says hello, number 0000042"); err != nil {
		return err
	}
	if err := stream.Flush(false); err != nil {
		return err
	}
	want := "server says hello, number 0000042"
	got, err := stream.BufferReader().ReadString(len(want))
	if err == nil && got != want {
		err = fmt.Errorf("the server answers %q", got)
	}
	return err
}

// SPDX-License-Identifier: MIT OR Apache-2.0

// Package transcript reads the recorded handshakes of spec/handshakes. Tests of other packages
// replay these handshakes.
package transcript

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A Transcript is a recorded handshake: what each of the two sides sends, and how the handshake
// ends at the side under test.
type Transcript struct {
	// File is the name of the transcript's file in spec/handshakes.
	File string
	// Lines are the lines of the file, each split at its tabs. The first says which side is under
	// test, the last how the handshake ends there.
	Lines [][]string
}

// All returns the transcripts that the index of spec/handshakes lists. Tests of packages in
// go/internal call it. It fails the test if there are fewer than countMin transcripts, or files
// that the index does not list.
func All(t testing.TB) []Transcript {
	t.Helper()
	directory := filepath.Join("..", "..", "..", "spec", "handshakes")
	files, err := filepath.Glob(filepath.Join(directory, "*.txt"))
	if err != nil || len(files) < countMin {
		t.Fatalf("%d transcripts, want %d or more (%v)", len(files), countMin, err)
	}
	index, err := os.ReadFile(filepath.Join(directory, "INDEX.md"))
	if err != nil || strings.Count(string(index), "\n| `") != len(files) {
		t.Fatalf("the index does not list %d transcripts (%v)", len(files), err)
	}
	all := make([]Transcript, len(files))
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = Transcript{filepath.Base(file), parse(string(text))}
	}
	return all
}

func parse(text string) [][]string {
	var lines [][]string
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.Split(line, "\t"))
		}
	}
	return lines
}

// Name returns the name of the transcript, for the name of a subtest.
func (t Transcript) Name() string { return strings.TrimSuffix(t.File, ".txt") }

// IsAcceptor reports whether the side under test is an acceptor.
func (t Transcript) IsAcceptor() bool { return t.Lines[0][1] == "acceptor" }

// Outcome returns how the handshake of the transcript ends at the side under test, in words
// separated by spaces.
func (t Transcript) Outcome() string { return strings.Join(t.Lines[len(t.Lines)-1][1:], " ") }

// Has reports whether a line of the transcript begins with the given words.
func (t Transcript) Has(words ...string) bool {
	return slices.ContainsFunc(t.Lines, func(line []string) bool {
		return len(line) >= len(words) && slices.Equal(line[:len(words)], words)
	})
}

// BeginsOnSocket reports whether the side under test asks to begin on the socket (SPEC 2.9), or
// agrees when its peer asks for that. The Go module never does either.
func (t Transcript) BeginsOnSocket() bool {
	return t.Has("set", "begin", "socket") || t.Outcome() == "socket 8"
}

// countMin is the least number of transcripts that a test must find. If there are fewer, a test
// does not replay all of them.
const countMin = 102

// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	spec     = "../../../spec"
	testTime = 30 * time.Second
)

// image is a row of the INDEX.md in spec/vectors or spec/hostile: a file of bytes, and the result
// of reading it.
type image struct {
	name string
	from uint64
	// code is the number of the violation in the image, or 0 if the image breaks no rule.
	code  uint64
	bytes []byte
}

// images reads the images of a kind that the INDEX.md of spec/vectors or spec/hostile lists.
func images(t testing.TB, kind string) []image {
	t.Helper()
	var found []image
	for _, directory := range []string{"vectors", "hostile"} {
		index, err := os.ReadFile(filepath.Join(spec, directory, "INDEX.md"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(index)) {
			cells := strings.Split(line, "|")
			if len(cells) < 6 || strings.TrimSpace(cells[2]) != kind {
				continue
			}
			i := image{name: strings.Trim(cells[1], " `")}
			i.from, _ = strconv.ParseUint(strings.TrimSpace(cells[3]), 10, 64)
			if directory == "hostile" {
				i.code, _ = strconv.ParseUint(strings.Trim(cells[4], " `"), 10, 64)
			}
			if i.bytes, err = os.ReadFile(filepath.Join(spec, directory, i.name)); err != nil {
				t.Fatal(err)
			}
			found = append(found, i)
		}
	}
	return found
}

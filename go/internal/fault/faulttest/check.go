// SPDX-License-Identifier: MIT OR Apache-2.0

// Package faulttest checks, for each rule of a package that package fault can disable, that a test
// fails while the rule is disabled.
package faulttest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"partywall.test/go/internal/fault"
)

// A Fault is a rule that can be disabled, and the test of the same package that must then fail: if
// it passes, no test protects the rule.
type Fault struct {
	Name, Rule, Test string
	NeedsRace        bool // only the race detector notices
}

// Check compares the list faults with the calls of [fault.Is] in the package of the working
// directory: they must name the same rules. It then builds the tests of the package with the tag
// pwfault. For each rule, the named test must pass, and must fail when the rule is disabled.
func Check(t *testing.T, faults []Fault, isRace bool) {
	t.Helper()
	t.Run("table", func(t *testing.T) { compare(t, faults) })
	if testing.Short() {
		t.Skip("builds the tests once more")
	}
	program := filepath.Join(t.TempDir(), "faulty.test")
	build := []string{"test", "-c", "-tags", "pwfault", "-o", program}
	if isRace {
		build = append(build, "-race")
	}
	if output, err := exec.Command("go", append(build, ".")...).CombinedOutput(); err != nil {
		t.Fatalf("building with faults: %v\n%s", err, output)
	}
	for _, f := range faults {
		t.Run(f.Name, func(t *testing.T) {
			if f.NeedsRace && !isRace {
				t.Skip("needs the race detector")
			}
			if output, err := run(program, "", f.Test); err != nil {
				t.Fatalf("%s fails without a fault: %v\n%s", f.Test, err, output)
			}
			output, err := run(program, f.Name, f.Test)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || strings.Contains(output, "test timed out") {
				t.Errorf("%s does not protect the rule: %s (%v)\n%s", f.Test, f.Rule, err, output)
			}
		})
	}
}

// timeMax is the longest time of one test. Some tests compute for several seconds, and much longer
// where other programs want the processor, too.
const timeMax = 5 * time.Minute

// run runs the named test of a compiled test program with one rule disabled, and returns the test's
// output.
func run(program, name, test string) (string, error) {
	command := exec.Command(program, "-test.run", "^"+test+"$", "-test.timeout", timeMax.String())
	command.Env = append(os.Environ(), fault.Variable+"="+name,
		"GORACE=halt_on_error=1 atexit_sleep_ms=0")
	output, err := command.CombinedOutput()
	return string(output), err
}

// compare fails the test t unless the list faults names exactly the rules that the code can
// disable, and each test that it names exists.
func compare(t *testing.T, faults []Fault) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	var inCode, inTable []string
	for _, call := range guard.FindAllStringSubmatch(source.String(), -1) {
		inCode = append(inCode, call[1])
	}
	for _, f := range faults {
		inTable = append(inTable, f.Name)
		if !strings.Contains(source.String(), "func "+f.Test+"(t *testing.T)") {
			t.Errorf("there is no test %s", f.Test)
		}
	}
	slices.Sort(inCode)
	slices.Sort(inTable)
	if inCode = slices.Compact(inCode); !slices.Equal(inCode, inTable) {
		t.Errorf("faults in the code: %v\nin the table: %v", inCode, inTable)
	}
}

var guard = regexp.MustCompile(`\bfault\.Is\("(\w+)"\)`)

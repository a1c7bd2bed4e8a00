// SPDX-License-Identifier: MIT OR Apache-2.0

package ring

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// faults are the rules that the build tag pwfault can disable, one per process. With each is the
// test that must fail when the rule is disabled: if it passes, no test protects the rule.
var faults = []struct {
	name, rule, test string
	needsRace        bool // only the race detector notices
}{
	{"no_zero_next_slot", "a 0 behind each batch (4.5)", "TestForgedWordsAreNeverRead", false},
	{"early_first_word", "the first word comes last (4.5)", "TestUnpublishedBatchIsInvisible",
		false},
	{"plain_publish", "the first word is published (4.7)", "TestNoWakeUpIsLostBetweenTwoSides",
		true},
	{"no_closing_slot", "a slot kept for CLOSE_WRITE (4.4)", "TestCloseFitsFullRing", false},
	{"no_pad", "no record wraps (4.1)", "TestRecordBeforeEndOfRingIsPadded", false},
	{"consumed_unchecked", "the range of consumed (4.6)", "TestConsumedOutsideRangeIsViolation",
		false},
	{"word_unchecked", "the position in a word (4.2)", "TestHostileRingsAreRefused", false},
	{"length_loaded_twice", "a word is loaded once (4.2)", "TestLengthIsLoadedOnce", false},
	{"late_report", "consumed after an eighth (4.6)", "TestRingAgreesWithQueue", false},
	{"released_unchecked", "the range of released (5.3)", "TestReleasedOutsideRangeIsViolation",
		false},
	{"same_generation", "an id is returned once (5.3)", "TestBlockReturnedTwiceIsRefused", false},
	{"no_join", "free memory is whole again (5.1)", "TestSlabAgreesWithIntervals", false},
	{"same_epoch", "an epoch for each sleep (6.2)", "TestSleeperIsNotifiedOncePerSleep", false},
	{"notified_forgotten", "one notification a sleep (6.2)", "TestSleeperIsNotifiedOncePerSleep",
		false},
	{"loud_quiet", "quiet sleepers (6.4)", "TestQuietSleeperIsNotifiedBeforeWaitOnly", false},
	{"gone_unseen", "a reader that left (6.5)", "TestGoneReaderIsNeitherNotifiedNorAwake", false},
}

// TestEachFaultIsNoticed builds the tests of this package with the tag pwfault. For each rule, the
// named test must pass, and must fail when the rule is disabled.
func TestEachFaultIsNoticed(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the tests once more")
	}
	program := filepath.Join(t.TempDir(), "faulty.test")
	build := []string{"test", "-c", "-tags", "pwfault", "-o", program}
	if raceEnabled {
		build = append(build, "-race")
	}
	if output, err := exec.Command("go", append(build, ".")...).CombinedOutput(); err != nil {
		t.Fatalf("building with faults: %v\n%s", err, output)
	}
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			if fault.needsRace && !raceEnabled {
				t.Skip("needs the race detector")
			}
			if output, err := runFaulty(program, "", fault.test); err != nil {
				t.Fatalf("%s fails without a fault: %v\n%s", fault.test, err, output)
			}
			output, err := runFaulty(program, fault.name, fault.test)
			_, isExit := err.(*exec.ExitError)
			if !isExit || strings.Contains(output, "test timed out") {
				t.Errorf("%s does not protect the rule: %s (%v)\n%s", fault.test, fault.rule, err,
					output)
			}
		})
	}
}

// runFaulty runs one test of program with a rule disabled, and returns the test's output.
func runFaulty(program, fault, test string) (string, error) {
	command := exec.Command(program, "-test.run", "^"+test+"$", "-test.timeout", "60s")
	command.Env = append(os.Environ(), "PARTYWALL_FAULT="+fault,
		"GORACE=halt_on_error=1 atexit_sleep_ms=0")
	output, err := command.CombinedOutput()
	return string(output), err
}

func TestEachFaultHasTest(t *testing.T) {
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
	for _, call := range regexp.MustCompile(`\bfault\("(\w+)"\)`).FindAllStringSubmatch(
		source.String(), -1) {
		inCode = append(inCode, call[1])
	}
	for _, fault := range faults {
		inTable = append(inTable, fault.name)
		if !strings.Contains(source.String(), "func "+fault.test+"(t *testing.T)") {
			t.Errorf("there is no test %s", fault.test)
		}
	}
	slices.Sort(inCode)
	slices.Sort(inTable)
	if inCode = slices.Compact(inCode); !slices.Equal(inCode, inTable) {
		t.Errorf("faults in the code: %v\nin the table: %v", inCode, inTable)
	}
}

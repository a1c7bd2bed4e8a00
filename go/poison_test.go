// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !pwpoison

package partywall

import (
	"os/exec"
	"strings"
	"testing"
)

// A test program that is built with the tag pwpoison finds the use of a message after its Release.
func TestPoisonedBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the tests once more")
	}
	output, err := exec.Command("go", "test", "-tags", "pwpoison", "-count=1", "-v",
		"-run", "^TestPoisonCatchesUseAfterRelease$", ".").CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS: TestPoisonCatchesUseAfterRelease") {
		t.Errorf("%v\n%s", err, output)
	}
}

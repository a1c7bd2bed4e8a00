// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestGeneratedFileIsThatOfTheTable(t *testing.T) {
	t.Chdir("../../..")
	table, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	want, err := generate(table)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(target)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from %s: run `go run ./internal/layout/gen`", target, source)
	}
}

func TestGenerateRefusesBrokenRows(t *testing.T) {
	for _, test := range []struct{ name, row, want string }{
		{"missing cell", "constant\ta\tu32\t1\t\t2", "has 6 cells"},
		{"section is no number", "constant\ta\tu32\t1\t\tx.1\t-", "section"},
		{"value is no number", "constant\ta\tu32\tb\t\t2.1\t-", "a: "},
		{"value does not fit the type", "constant\ta\tu8\t256\t\t2.1\t-", "a: "},
		{"type is no number's", "constant\ta\tstruct\t1\t\t2.1\t-", "type"},
		{"bytes are no digits", "constant\ta\tbytes\t123\t\t2.1\t-", "a: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := generate([]byte(test.row + "\n"))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, not one with %q", err, test.want)
			}
		})
	}
}

func TestCamel(t *testing.T) {
	for name, want := range map[string]string{
		"hello.version_min":   "HelloVersionMin",
		"region.session_id":   "RegionSessionID",
		"foreign_hang-up":     "ForeignHangUp",
		"not_Partywall":       "NotPartywall",
		"descriptor_pidfd":    "DescriptorPidfd",
		"feature_shm":         "FeatureSHM",
		"identity_state_open": "IdentityStateOpen",
	} {
		if got := camel(name); got != want {
			t.Errorf("camel(%q) is %q, not %q", name, got, want)
		}
	}
}

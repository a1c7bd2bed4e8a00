// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"strings"
	"testing"

	"partywall.test/go/internal/layout"
)

// FuzzAddress reads any text as an address. A text that the parser accepts is written again
// unchanged, and fits the address of a socket. The error for a text that it refuses has the number
// 301 or 302 of SPEC 17.
func FuzzAddress(f *testing.F) {
	for _, text := range []string{
		"unix:/run/app.sock", "unix:@app", "unix:", "unix:@", "unix:a\x00b", "tcp:127.0.0.1:7000",
		"tcp:[::1]:0", "tcp:host", "tcp::1", "tcp:host:65536", "", "udp:a:1", "partywall",
		"unix:/" + strings.Repeat("a", unixNameMax), "unix:@" + strings.Repeat("a", unixNameMax),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAddress(text)
		if err != nil {
			if number := Number(err); number != layout.ErrorAddressSyntax &&
				number != layout.ErrorAddressTooLong {
				t.Errorf("error %d", number)
			}
			return
		}
		if again, err := ParseAddress(a.String()); a.String() != text || err != nil || again != a {
			t.Errorf("%q is read as %+v, and written as %q", text, a, a.String())
		}
		if a.IsUnix() && (len(a.Name) > unixNameMax+1 || strings.Contains(a.Name, "\x00")) {
			t.Errorf("no socket has the name %q", a.Name)
		}
	})
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package calls

import (
	"strings"
	"testing"
)

// The text of a Failure has the handler's detail if the detail is text. It never has bytes that
// would change a terminal or fill a log.
func TestTextOfAFailureHasADetailThatIsText(t *testing.T) {
	const sized = " bytes of detail)"
	for detail, want := range map[string]string{
		"nothing asked":          "code 7: nothing asked",
		"naïve":                  "code 7: naïve",
		"":                       "(0" + sized,
		"\x1b[2J":                "(4" + sized,
		"two\nlines":             "(9" + sized,
		"\xff\xfe":               "(2" + sized,
		strings.Repeat("x", 200): "code 7: xxx",
		strings.Repeat("x", 201): "(201" + sized,
	} {
		text := (&Failure{Code: 7, Detail: []byte(detail)}).Error()
		if !strings.Contains(text, want) {
			t.Errorf("the text of %q is %q", detail, text)
		}
	}
}

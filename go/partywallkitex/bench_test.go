// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallkitex

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/connpool"
	"github.com/cloudwego/kitex/transport"

	partywall "partywall.test/go"
)

// Calls to another process, one after the other on a long connection: over shared memory with the
// handlers of package gonet, and over a Unix socket with these handlers and with those of netpoll,
// which Kitex uses by default.
func BenchmarkCall(b *testing.B) {
	for _, size := range []int{64, 65_536} {
		for _, over := range []string{"shared memory", "Unix socket", "netpoll"} {
			b.Run(fmt.Sprintf("%d bytes/%s", size, over), func(b *testing.B) {
				path := filepath.Join(b.TempDir(), "s")
				c := benchClient(b, path, over)
				body := counted(1, size)
				mustEcho(b, c, body)
				for b.Loop() {
					if _, err := c.call(b.Context(), "echo", body); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func benchClient(b *testing.B, path, over string) testClient {
	options := []client.Option{
		client.WithTransportProtocol(transport.TTHeaderFramed),
		client.WithLongConnection(connpool.IdleConfig{
			MaxIdlePerAddress: 1, MaxIdleGlobal: 1, MaxIdleTimeout: testTime,
		}),
	}
	if over == "shared memory" {
		startServer(b, "unix:"+path, over, "")
		return newClient(b, &partywall.Config{}, "unix:"+path, options...)
	}
	prefix := map[string]string{"Unix socket": plainPrefix, "netpoll": netpollPrefix}[over]
	startServer(b, prefix+path, "", "")
	return plainClient(b, path, over == "netpoll", options...)
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallhertz

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app/client"
	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/hertz/pkg/network/standard"
	"github.com/cloudwego/hertz/pkg/protocol"

	partywall "partywall.test/go"
)

// BenchmarkPost times one request after the other to another process, over shared memory and over a
// Unix socket of package net, with the standard transporter of Hertz for both.
func BenchmarkPost(b *testing.B) {
	for _, size := range []int{64, 64 << 10} {
		for _, kind := range []string{"partywall", "unix"} {
			b.Run(fmt.Sprintf("%d/%s", size, kind), func(b *testing.B) {
				c := benchClient(b, kind)
				request, response := &protocol.Request{}, &protocol.Response{}
				for b.Loop() {
					request.Reset()
					response.Reset()
					request.SetMethod("POST")
					request.SetRequestURI("http://app/echo")
					request.SetBodyRaw(make([]byte, size))
					err := c.Do(context.Background(), request, response)
					if err != nil || len(response.Body()) != size {
						b.Fatal(err, len(response.Body()))
					}
				}
			})
		}
	}
}

// benchClient starts a server of the given kind in another process, and returns a client of Hertz
// for it.
func benchClient(b *testing.B, kind string) *client.Client {
	path := filepath.Join(b.TempDir(), "s")
	if kind == "partywall" {
		startServer(b, "unix:"+path, "shared memory")
		return newClient(b, "unix:"+path, &partywall.Config{})
	}
	startServer(b, plainPrefix+path, "")
	c, err := client.NewClient(client.WithDialer(plainDialer{standard.NewDialer(), path}))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.CloseIdleConnections)
	return c
}

// A plainDialer is a Hertz dialer that connects to a Unix socket of package net.
type plainDialer struct {
	network.Dialer
	path string
}

func (d plainDialer) DialConnection(
	_, _ string, timeout time.Duration, config *tls.Config,
) (network.Conn, error) {
	return d.Dialer.DialConnection("unix", d.path, timeout, config)
}

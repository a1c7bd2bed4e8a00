// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallhertz_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/client"
	"github.com/cloudwego/hertz/pkg/app/server"

	partywall "partywall.test/go"
	"partywall.test/go/partywallhertz"
)

func Example() {
	directory, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(directory)
	address := "unix:" + filepath.Join(directory, "app.sock")

	listener, err := partywall.Listen(address, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	h := server.New(partywallhertz.ServerOptions(listener)...)
	h.GET("/orders", func(ctx context.Context, c *app.RequestContext) {
		peer, _ := partywallhertz.PeerFromContext(ctx)
		c.String(200, "called by this process: %v", peer.PID == os.Getpid())
	})
	go h.Engine.Run()
	defer h.Close()

	var dialer partywall.Dialer
	defer dialer.Close()
	c, err := client.NewClient(client.WithDialer(partywallhertz.NewDialer(&dialer, address)),
		client.WithDialTimeout(10*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	status, body, err := c.Get(context.Background(), nil, "http://app/orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(status, string(body))
	// Output: 200 called by this process: true
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package examples_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	partywall "partywall.test/go"
	"partywall.test/go/examples"
)

// A client of Redis connects through shared memory. The server listens on TCP, and a forwarder next
// to it accepts the client's streams. In this example miniredis takes the place of the server.
func Example_redis() {
	directory, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(directory)
	address := "unix:" + filepath.Join(directory, "redis.sock")

	server, err := miniredis.Run()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	listener, err := partywall.Listen(address, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	go examples.Forward(listener, func() (net.Conn, error) {
		return net.Dial("tcp", server.Addr())
	})

	var dialer partywall.Dialer
	defer dialer.Close()
	client := redis.NewClient(&redis.Options{
		Addr:   address,
		Dialer: dialer.DialContext,
	})
	defer client.Close()
	ctx := context.Background()
	if err := client.Set(ctx, "order", 5, 0).Err(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(client.Get(ctx, "order").Result())
	// Output: 5 <nil>
}

// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallkitex_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/client/genericclient"
	"github.com/cloudwego/kitex/pkg/generic"
	"github.com/cloudwego/kitex/server/genericserver"

	partywall "partywall.test/go"
	"partywall.test/go/partywallkitex"
)

// A Kitex service without generated code: its requests and answers are plain bytes. Services with
// generated code take the same options.
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
	server := genericserver.NewUnknownServiceOrMethodServer(
		&genericserver.UnknownServiceOrMethodHandler{DefaultHandler: serveOrder},
		partywallkitex.ServerOptions(listener)...)
	go server.Run()
	defer server.Stop()

	var dialer partywall.Dialer
	defer dialer.Close()
	// The time-out of Kitex, 50 ms, may pass on a busy machine before the session is there.
	options := append(partywallkitex.ClientOptions(&dialer, address),
		client.WithConnectTimeout(10*time.Second))
	orders, err := genericclient.NewClient("orders", generic.BinaryPbGeneric("Orders", "shop"),
		options...)
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := orders.GenericCall(context.Background(), "Order", []byte("two apples"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(answer.([]byte)))
	// Output: two apples for this process: true
}

func serveOrder(ctx context.Context, _, _ string, request any) (any, error) {
	peer, _ := partywallkitex.PeerFromContext(ctx)
	return fmt.Appendf(nil, "%s for this process: %v", request, peer.PID == os.Getpid()), nil
}

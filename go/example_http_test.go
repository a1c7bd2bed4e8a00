// SPDX-License-Identifier: MIT OR Apache-2.0

package partywall_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"

	partywall "partywall.test/go"
)

// peerKey is the key under which a request's context holds the peer of its connection.
type peerKey struct{}

// A handler of HTTP can find out which process has made a request. For this the server stores the
// peer of each connection in the context of the connection's requests.
func ExampleStream_Peer() {
	address, remove := place()
	defer remove()
	listener, err := partywall.Listen(address, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	server := http.Server{
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, conn.(*partywall.Stream).Peer())
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			peer := r.Context().Value(peerKey{}).(partywall.Peer)
			if int(peer.UID) != os.Geteuid() {
				http.Error(w, "another user", http.StatusForbidden)
				return
			}
			fmt.Fprintln(w, "called by this process:", peer.PID == os.Getpid())
		}),
	}
	go server.Serve(listener)
	defer server.Close()

	var dialer partywall.Dialer
	defer dialer.Close()
	client := http.Client{Transport: transportTo(&dialer, address)}
	fmt.Print(body(client.Get("http://server/")))
	// Output: called by this process: true
}

// A reverse proxy takes requests from the network, and passes them over shared memory to a server.
func ExampleDialer_DialContext() {
	address, remove := place()
	defer remove()
	listener, err := partywall.Listen(address, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, r.URL.Path, "through", r.Header.Get("X-Forwarded-Host") != "")
	})}
	go server.Serve(listener)
	defer server.Close()

	var dialer partywall.Dialer
	defer dialer.Close()
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Transport: transportTo(&dialer, address),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "server"})
			r.SetXForwarded()
		},
	})
	defer proxy.Close()
	fmt.Print(body(http.Get(proxy.URL + "/orders")))
	// Output: /orders through true
}

// transportTo returns a transport of HTTP that connects to the address, whatever the host of a URL
// is.
func transportTo(dialer *partywall.Dialer, address string) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		},
	}
}

func body(response *http.Response, err error) string {
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

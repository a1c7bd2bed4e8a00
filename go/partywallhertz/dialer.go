// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallhertz

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/cloudwego/hertz/pkg/network"

	partywall "partywall.test/go"
)

// NewDialer returns a dialer for clients of Hertz. It connects to the listener at the address,
// whatever the host of a request is. The caller closes the partywall.Dialer after its clients.
func NewDialer(dialer *partywall.Dialer, address string) network.Dialer {
	return &addressDialer{dialer, address}
}

type addressDialer struct {
	dialer  *partywall.Dialer
	address string
}

// DialConnection opens a stream to the address of the dialer. It fails if a configuration of TLS is
// given.
func (d *addressDialer) DialConnection(
	name, host string, timeout time.Duration, config *tls.Config,
) (network.Conn, error) {
	stream, err := d.DialTimeout(name, host, timeout, config)
	if err != nil {
		return nil, err
	}
	return newConn(stream), nil
}

// DialTimeout opens a stream to the address of the dialer, without the buffers of Hertz. A timeout
// of 0 means that there is none.
func (d *addressDialer) DialTimeout(
	name, _ string, timeout time.Duration, config *tls.Config,
) (net.Conn, error) {
	if config != nil {
		return nil, errTLS
	}
	ctx := context.Background()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return d.dialer.DialContext(ctx, name, d.address)
}

// AddTLS always fails.
func (*addressDialer) AddTLS(network.Conn, *tls.Config) (network.Conn, error) {
	return nil, errTLS
}

var errTLS = errors.New("partywallhertz: there is no TLS over shared memory; use a URL of http")

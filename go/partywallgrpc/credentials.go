// SPDX-License-Identifier: MIT OR Apache-2.0

package partywallgrpc

import (
	"context"
	"fmt"
	"net"
	"slices"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	partywall "partywall.test/go"
)

// AuthInfo identifies the process at the other end of a gRPC connection. A handler gets it by
// [PeerFromContext].
type AuthInfo struct {
	// CommonAuthInfo has the level PrivacyAndIntegrity if the kernel has identified the peer, and
	// NoSecurity otherwise.
	credentials.CommonAuthInfo
	// Peer is the process at the other end of the connection of gRPC.
	Peer partywall.Peer
}

var (
	_ credentials.AuthInfo           = AuthInfo{}
	_ credentials.AuthorityValidator = AuthInfo{}
)

// AuthType returns "partywall", the name of these credentials.
func (AuthInfo) AuthType() string { return protocol }

// ValidateAuthority allows every authority, because the address and the kernel identify the server.
func (AuthInfo) ValidateAuthority(string) error { return nil }

// NewCredentials returns credentials for servers and for clients. A connection fails if admit
// returns an error for the peer. If admit is nil, every peer that the kernel has identified is
// admitted; over TCP no peer is admitted, because the kernel identifies none.
func NewCredentials(admit func(partywall.Peer) error) credentials.TransportCredentials {
	if admit == nil {
		admit = requireCredentials
	}
	return &transportCredentials{admit: admit}
}

// OnlyUIDs returns a function for [NewCredentials] that admits processes of the given users alone.
func OnlyUIDs(uids ...uint32) func(partywall.Peer) error {
	uids = slices.Clone(uids)
	return func(p partywall.Peer) error {
		if err := requireCredentials(p); err != nil {
			return err
		}
		if !slices.Contains(uids, p.UID) {
			return fmt.Errorf("%v is not of a user that is admitted", p)
		}
		return nil
	}
}

// PeerFromContext returns the process that made the call of a handler. The second result is false
// if the connection of the call does not have the credentials of [NewCredentials].
func PeerFromContext(ctx context.Context) (partywall.Peer, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return partywall.Peer{}, false
	}
	info, ok := p.AuthInfo.(AuthInfo)
	return info.Peer, ok
}

// transportCredentials are gRPC credentials that exchange no bytes, because the handshake of the
// session has already identified the peer.
type transportCredentials struct {
	admit      func(partywall.Peer) error
	serverName string
}

func (c *transportCredentials) ClientHandshake(
	_ context.Context, _ string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	return c.handshake(conn)
}

func (c *transportCredentials) ServerHandshake(
	conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	return c.handshake(conn)
}

func (c *transportCredentials) handshake(
	conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	identified, ok := conn.(interface{ Peer() partywall.Peer })
	if !ok {
		return nil, nil, fmt.Errorf("partywallgrpc: a %T does not identify its peer; "+
			"the listener or dialer has to be one of package partywall", conn)
	}
	p := identified.Peer()
	if err := c.admit(p); err != nil {
		return nil, nil, fmt.Errorf("partywallgrpc: %w", err)
	}
	level := credentials.NoSecurity
	if p.HasCredentials {
		level = credentials.PrivacyAndIntegrity
	}
	common := credentials.CommonAuthInfo{SecurityLevel: level}
	return conn, AuthInfo{CommonAuthInfo: common, Peer: p}, nil
}

func (c *transportCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: protocol, ServerName: c.serverName}
}

func (c *transportCredentials) Clone() credentials.TransportCredentials {
	clone := *c
	return &clone
}

func (c *transportCredentials) OverrideServerName(name string) error {
	c.serverName = name
	return nil
}

func requireCredentials(p partywall.Peer) error {
	if !p.HasCredentials {
		return fmt.Errorf("%v has no credentials that the kernel has verified", p)
	}
	return nil
}

// protocol is the name of the credentials that [NewCredentials] returns.
const protocol = "partywall"

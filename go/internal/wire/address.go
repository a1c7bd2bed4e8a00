// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"partywall.test/go/internal/layout"
)

// An Address says where a listener is reached (SPEC 2.1).
//
//	unix:/path  unix:@name  tcp:host:port
type Address struct {
	Network string // "unix" or "tcp"
	Name    string // as package net writes it
}

// ParseAddress reads the text of an address. The error has the number 301 or 302 of SPEC 17
// (addresses).
func ParseAddress(text string) (Address, error) {
	network, name, _ := strings.Cut(text, ":")
	a := Address{Network: network, Name: name}
	wrong := func(why string) (Address, error) {
		return Address{}, &Failure{
			Number: layout.ErrorAddressSyntax,
			Text:   fmt.Sprintf("%q is no address: %s", text, why),
		}
	}
	switch network {
	case "unix":
		bytes := strings.TrimPrefix(name, "@")
		switch {
		case bytes == "":
			return wrong("a path or a name is missing")
		case strings.ContainsRune(name, 0):
			return wrong("a path has no zero byte")
		case len(bytes) > unixNameMax:
			return Address{}, &Failure{
				Number: layout.ErrorAddressTooLong,
				Text:   fmt.Sprintf("%q exceeds %d bytes: choose a shorter one", text, unixNameMax),
			}
		}
		return a, nil
	case "tcp":
		host, port, err := net.SplitHostPort(name)
		if err != nil {
			return wrong(err.Error())
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil || host == "" {
			return wrong("write tcp:host:port")
		}
		return a, nil
	}
	return wrong("write unix:/path, unix:@name or tcp:host:port")
}

// String returns the text of the address.
func (a Address) String() string { return a.Network + ":" + a.Name }

// IsUnix reports whether the address is that of a Unix socket.
func (a Address) IsUnix() bool { return a.Network == "unix" }

// IsAbstract reports whether the address is an abstract name, "unix:@name", which no file
// permissions protect.
func (a Address) IsAbstract() bool { return a.IsUnix() && strings.HasPrefix(a.Name, "@") }

// IsFile reports whether the address is the path of a socket file.
func (a Address) IsFile() bool { return a.IsUnix() && !a.IsAbstract() }

// unixNameMax is the longest path or abstract name of a Unix socket in bytes.
const unixNameMax = 107

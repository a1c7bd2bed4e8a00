// SPDX-License-Identifier: MIT OR Apache-2.0

package wire

import (
	"os"
	"sync"
	"time"

	"partywall.test/go/internal/layout"
	"partywall.test/go/internal/mem"
	"partywall.test/go/internal/sys"
)

// ownRegion is the region of this side, which only this side writes. Its descriptor stays open,
// because tools such as "partywall inspect" find a region by its descriptor.
type ownRegion struct {
	*mapping
	header   layout.Region
	region   *sys.Region
	memory   mem.Own
	control  mem.Own
	ring     mem.Own
	releases mem.Own
	slab     mem.Own
}

// newOwnRegion makes a region, and writes the given header and address to its header page.
func newOwnRegion(header layout.Region, address string) (*ownRegion, error) {
	region, err := sys.NewRegion("partywall-region", header.Size)
	if err != nil {
		return nil, err
	}
	memory := region.Memory()
	header.CreatedNS = uint64(time.Now().UnixNano())
	memory.Write(0, header.Append(nil))
	memory.Write(layout.IdentityAddress, layout.AppendText(nil, address))
	return &ownRegion{
		mapping:  newMapping(region.Unmap),
		header:   header,
		region:   region,
		memory:   memory,
		control:  memory.Part(layout.ControlOffset, layout.PageBytes),
		ring:     memory.Part(header.RingOffset, header.RingSize),
		releases: memory.Part(header.ReleaseOffset, 8*header.ReleaseEntries),
		slab:     memory.Part(header.SlabOffset, header.SlabSize),
	}, nil
}

// setState publishes the state of the connection in this side's region, where tools read it (SPEC
// 3.4). The path of this program is published only if the peer is trusted.
func (r *ownRegion) setState(state uint64, isTrusted bool) {
	if state == layout.IdentityStateOpen && isTrusted {
		r.control.Write(layout.IdentityProgram, layout.AppendText(nil, program()))
	}
	r.control.Publish(layout.IdentityChanged, uint64(time.Now().UnixNano()))
	r.control.Publish(layout.IdentityState, state)
}

// setBroken publishes, in this side's region, the number of the error that ended the connection.
// Tools read it there.
func (r *ownRegion) setBroken(number layout.ErrorNumber) {
	r.control.Publish(layout.IdentityLastError, uint64(number))
	r.setState(layout.IdentityStateBroken, false)
}

var program = sync.OnceValue(func() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
})

type peerRegion struct {
	*mapping
	header   layout.Region
	control  mem.Peer
	ring     mem.Peer
	releases mem.Peer
	slab     mem.Peer
}

// mapPeerRegion checks and maps the region behind a descriptor of the peer. The error is a
// violation of the rules for region headers, or an error of [sys.MapPeer].
func mapPeerRegion(descriptor int, limit uint64, want layout.Expectation) (*peerRegion, error) {
	mapped, err := sys.MapPeer(descriptor, want.Size, limit)
	if err != nil {
		return nil, err
	}
	memory := mapped.Memory()
	copied := make([]byte, layout.RegionHeaderBytes)
	memory.Copy(copied, 0)
	header, err := layout.ParseRegion(copied, want)
	if err != nil {
		_ = mapped.Unmap()
		return nil, err
	}
	return &peerRegion{
		mapping:  newMapping(mapped.Unmap),
		header:   header,
		control:  memory.Part(layout.ControlOffset, layout.PageBytes),
		ring:     memory.Part(header.RingOffset, header.RingSize),
		releases: memory.Part(header.ReleaseOffset, 8*header.ReleaseEntries),
		slab:     memory.Part(header.SlabOffset, header.SlabSize),
	}, nil
}

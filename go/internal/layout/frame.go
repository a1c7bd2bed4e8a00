// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

import "encoding/binary"

// A Preamble is the first 16 bytes of a frame of the handshake (SPEC 2.2).
//
//	byte 0     8                       12       16
//	     | tag | versions of a HELLO   | length | rest, up to length
type Preamble struct {
	Tag    string
	Length int // of the whole frame, in bytes
	// VersionMin and VersionMax are the versions that a HELLO states; in other frames both are 0.
	VersionMin, VersionMax uint16
}

// ParsePreamble checks the first FramePreambleBytes bytes of a frame. The receiver may then read up
// to Length bytes, and no more.
func ParsePreamble(b []byte) (Preamble, error) {
	if len(b) < FramePreambleBytes {
		return Preamble{}, ViolationFrame
	}
	p := Preamble{Tag: string(b[:8])}
	length := binary.LittleEndian.Uint32(b[HelloLengthOffset:])
	low := uint32(FramePreambleBytes)
	switch p.Tag {
	case HelloTag:
		p.VersionMin = binary.LittleEndian.Uint16(b[HelloVersionMinOffset:])
		p.VersionMax = binary.LittleEndian.Uint16(b[HelloVersionMaxOffset:])
		if p.VersionMin == 0 || p.VersionMin > p.VersionMax {
			return Preamble{}, ViolationFrame
		}
		if p.Common() != 0 {
			low = HelloBytes
		}
	case OfferTag:
		low = OfferBytes
	case ReadyTag:
		low = ReadyBytes
	case RejectTag:
		low = RejectHeadBytes
	default:
		return Preamble{}, ViolationFrame
	}
	if length < low || length > FrameBytesMax {
		return Preamble{}, ViolationFrame
	}
	p.Length = int(length)
	return p, nil
}

// Common returns the highest version of the protocol that this implementation and the sender of the
// HELLO both speak, or 0 if there is none (SPEC 1.3).
func (p Preamble) Common() uint16 {
	version := min(p.VersionMax, ProtocolVersionMax)
	if version < p.VersionMin || version < ProtocolVersionMin {
		return 0
	}
	return version
}

// parseFrame checks that b begins with a whole frame of the given tag. It returns that frame,
// without the bytes after it.
func parseFrame(b []byte, tag string) (Preamble, []byte, error) {
	p, err := ParsePreamble(b)
	if err != nil {
		return Preamble{}, nil, err
	}
	if p.Tag != tag || len(b) < p.Length {
		return Preamble{}, nil, ViolationFrame
	}
	return p, b[:p.Length], nil
}

// Descriptors is the list of the descriptors that come with a frame, by their kinds (SPEC 2.2).
type Descriptors []uint8

// parseDescriptors reads the list of descriptors in a frame. Only kinds that this version does not
// know may occur more than once.
func parseDescriptors(b []byte) (Descriptors, error) {
	count := int(b[DescriptorsCountOffset])
	if count > DescriptorsMax {
		return nil, ViolationFrame
	}
	list := Descriptors(b[DescriptorsKindsOffset:][:count])
	for i, kind := range list {
		if kind >= DescriptorPidfd && kind <= DescriptorRoom && list[:i].Has(kind) {
			return nil, ViolationFrame
		}
	}
	return append(Descriptors(nil), list...), nil
}

// Has reports whether the list contains the kind.
func (d Descriptors) Has(kind uint8) bool {
	for _, other := range d {
		if other == kind {
			return true
		}
	}
	return false
}

// put writes the list of descriptors to the 8 bytes of b. It panics if the list has more than
// DescriptorsMax kinds.
func (d Descriptors) put(b []byte) {
	if len(d) > DescriptorsMax {
		panic("layout: too many descriptors for a frame")
	}
	b[DescriptorsCountOffset] = uint8(len(d))
	copy(b[DescriptorsKindsOffset:], d)
}

// A Hello is the frame HELLO: versions, features and limits of a side (SPEC 2.2, 2.3).
type Hello struct {
	VersionMin, VersionMax uint16
	Features               uint64
	Service                uint32
	FallbackReason         FallbackReason
	MapMax                 uint64 // in bytes
	MessageMax             uint64 // in bytes
	PeerBlocksMax          uint64
	SegmentsMax            uint32
	PID                    uint32
	Nonce                  [16]byte
	StreamWindow           uint64 // in bytes
	StreamsMax             uint32
	Descriptors            Descriptors
}

// ParseHello reads the frame HELLO. If its sender and this version have no protocol version in
// common, all other fields are 0, because they have no meaning.
func ParseHello(frame []byte) (Hello, error) {
	p, b, err := parseFrame(frame, HelloTag)
	if err != nil {
		return Hello{}, err
	}
	h := Hello{VersionMin: p.VersionMin, VersionMax: p.VersionMax}
	if p.Common() == 0 {
		return h, nil
	}
	h.Features = binary.LittleEndian.Uint64(b[HelloFeaturesOffset:])
	h.Service = binary.LittleEndian.Uint32(b[HelloServiceOffset:])
	h.FallbackReason = FallbackReason(binary.LittleEndian.Uint32(b[HelloFallbackReasonOffset:]))
	h.MapMax = binary.LittleEndian.Uint64(b[HelloMapMaxOffset:])
	h.MessageMax = binary.LittleEndian.Uint64(b[HelloMessageMaxOffset:])
	h.PeerBlocksMax = binary.LittleEndian.Uint64(b[HelloPeerBlocksMaxOffset:])
	h.SegmentsMax = binary.LittleEndian.Uint32(b[HelloSegmentsMaxOffset:])
	h.PID = binary.LittleEndian.Uint32(b[HelloPIDOffset:])
	h.Nonce = [16]byte(b[HelloNonceOffset:])
	h.StreamWindow = binary.LittleEndian.Uint64(b[HelloStreamWindowOffset:])
	h.StreamsMax = binary.LittleEndian.Uint32(b[HelloStreamsMaxOffset:])
	if h.Descriptors, err = parseDescriptors(b[HelloDescriptorsOffset:]); err != nil {
		return Hello{}, err
	}
	if h.Service == 0 || h.Features&FeatureSHM != 0 && !IsReleaseEntries(h.PeerBlocksMax) {
		return Hello{}, ViolationFrame
	}
	return h, nil
}

// Append appends the frame HELLO to dst.
func (h Hello) Append(dst []byte) []byte {
	b := make([]byte, HelloBytes)
	copy(b, HelloTag)
	binary.LittleEndian.PutUint16(b[HelloVersionMinOffset:], h.VersionMin)
	binary.LittleEndian.PutUint16(b[HelloVersionMaxOffset:], h.VersionMax)
	binary.LittleEndian.PutUint32(b[HelloLengthOffset:], HelloBytes)
	binary.LittleEndian.PutUint64(b[HelloFeaturesOffset:], h.Features)
	binary.LittleEndian.PutUint32(b[HelloServiceOffset:], h.Service)
	binary.LittleEndian.PutUint32(b[HelloFallbackReasonOffset:], uint32(h.FallbackReason))
	binary.LittleEndian.PutUint64(b[HelloMapMaxOffset:], h.MapMax)
	binary.LittleEndian.PutUint64(b[HelloMessageMaxOffset:], h.MessageMax)
	binary.LittleEndian.PutUint64(b[HelloPeerBlocksMaxOffset:], h.PeerBlocksMax)
	binary.LittleEndian.PutUint32(b[HelloSegmentsMaxOffset:], h.SegmentsMax)
	binary.LittleEndian.PutUint32(b[HelloPIDOffset:], h.PID)
	copy(b[HelloNonceOffset:], h.Nonce[:])
	binary.LittleEndian.PutUint64(b[HelloStreamWindowOffset:], h.StreamWindow)
	binary.LittleEndian.PutUint32(b[HelloStreamsMaxOffset:], h.StreamsMax)
	h.Descriptors.put(b[HelloDescriptorsOffset:])
	return append(dst, b...)
}

// An Offer is the frame OFFER: the transport that a side offers (SPEC 2.2).
type Offer struct {
	Transport   uint32
	Reason      FallbackReason
	RegionSize  uint64 // in bytes
	Descriptors Descriptors
}

// ParseOffer reads the frame OFFER.
func ParseOffer(frame []byte) (Offer, error) {
	_, b, err := parseFrame(frame, OfferTag)
	if err != nil {
		return Offer{}, err
	}
	o := Offer{
		Transport:  binary.LittleEndian.Uint32(b[OfferTransportOffset:]),
		Reason:     FallbackReason(binary.LittleEndian.Uint32(b[OfferReasonOffset:])),
		RegionSize: binary.LittleEndian.Uint64(b[OfferRegionSizeOffset:]),
	}
	if o.Descriptors, err = parseDescriptors(b[OfferDescriptorsOffset:]); err != nil {
		return Offer{}, err
	}
	if !isTransport(o.Transport) ||
		o.Transport == TransportSHM && !o.Descriptors.Has(DescriptorRegion) {
		return Offer{}, ViolationFrame
	}
	return o, nil
}

// Append appends the frame OFFER to dst.
func (o Offer) Append(dst []byte) []byte {
	b := make([]byte, OfferBytes)
	copy(b, OfferTag)
	binary.LittleEndian.PutUint32(b[OfferLengthOffset:], OfferBytes)
	binary.LittleEndian.PutUint32(b[OfferTransportOffset:], o.Transport)
	binary.LittleEndian.PutUint32(b[OfferReasonOffset:], uint32(o.Reason))
	binary.LittleEndian.PutUint64(b[OfferRegionSizeOffset:], o.RegionSize)
	o.Descriptors.put(b[OfferDescriptorsOffset:])
	return append(dst, b...)
}

// A Ready is the frame READY: the transport that a side has chosen (SPEC 2.2).
type Ready struct {
	Transport   uint32
	Reason      FallbackReason
	Flags       uint32 // ReadyDoorbells or 0; other bits are kept
	Descriptors Descriptors
}

// ParseReady reads the frame READY.
func ParseReady(frame []byte) (Ready, error) {
	_, b, err := parseFrame(frame, ReadyTag)
	if err != nil {
		return Ready{}, err
	}
	r := Ready{
		Transport: binary.LittleEndian.Uint32(b[ReadyTransportOffset:]),
		Reason:    FallbackReason(binary.LittleEndian.Uint32(b[ReadyReasonOffset:])),
		Flags:     binary.LittleEndian.Uint32(b[ReadyFlagsOffset:]),
	}
	if r.Descriptors, err = parseDescriptors(b[ReadyDescriptorsOffset:]); err != nil {
		return Ready{}, err
	}
	if !isTransport(r.Transport) {
		return Ready{}, ViolationFrame
	}
	return r, nil
}

// Append appends the frame READY to dst.
func (r Ready) Append(dst []byte) []byte {
	b := make([]byte, ReadyBytes)
	copy(b, ReadyTag)
	binary.LittleEndian.PutUint32(b[ReadyLengthOffset:], ReadyBytes)
	binary.LittleEndian.PutUint32(b[ReadyTransportOffset:], r.Transport)
	binary.LittleEndian.PutUint32(b[ReadyReasonOffset:], uint32(r.Reason))
	binary.LittleEndian.PutUint32(b[ReadyFlagsOffset:], r.Flags)
	r.Descriptors.put(b[ReadyDescriptorsOffset:])
	return append(dst, b...)
}

// A Reject is the frame REJECT: a side refuses the connection (SPEC 2.2, 2.5).
type Reject struct {
	Code RejectCode
	Text string // for operators; not necessarily UTF-8
}

// ParseReject reads the frame REJECT.
func ParseReject(frame []byte) (Reject, error) {
	_, b, err := parseFrame(frame, RejectTag)
	if err != nil {
		return Reject{}, err
	}
	text := b[RejectHeadBytes:]
	length := binary.LittleEndian.Uint32(b[RejectTextLengthOffset:])
	if length > RejectTextMax || length != uint32(len(text)) {
		return Reject{}, ViolationFrame
	}
	code := RejectCode(binary.LittleEndian.Uint32(b[RejectCodeOffset:]))
	return Reject{Code: code, Text: string(text)}, nil
}

// Append appends the frame REJECT to dst, with at most RejectTextMax bytes of its text.
func (r Reject) Append(dst []byte) []byte {
	text := r.Text[:min(len(r.Text), RejectTextMax)]
	b := make([]byte, RejectHeadBytes, RejectHeadBytes+len(text))
	copy(b, RejectTag)
	binary.LittleEndian.PutUint32(b[RejectLengthOffset:], uint32(RejectHeadBytes+len(text)))
	binary.LittleEndian.PutUint32(b[RejectCodeOffset:], uint32(r.Code))
	binary.LittleEndian.PutUint32(b[RejectTextLengthOffset:], uint32(len(text)))
	return append(dst, append(b, text...)...)
}

func isTransport(number uint32) bool {
	return number == TransportSHM || number == TransportSocket
}

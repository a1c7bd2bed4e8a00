// SPDX-License-Identifier: MIT OR Apache-2.0

package layout

import "encoding/binary"

// A ControlFrame is a frame of the control socket, or a doorbell (SPEC 6.6, 6.7).
type ControlFrame struct {
	Type        uint8
	Descriptors int    // that come with the first byte of the frame
	Length      int    // in bytes, from the type on
	Segment     uint32 // number of the segment, if the type is ControlSegment
}

// IsSkipped reports whether the receiver ignores the frame and closes its descriptors.
func (f ControlFrame) IsSkipped() bool { return f.Type >= ControlSkippedMin }

// ParseControl reads the doorbell or the frame at the beginning of b, which is not empty. The
// second result is false if the frame is not complete yet. Bytes that break a rule are an error
// even before the rest of the frame has come.
func ParseControl(b []byte) (ControlFrame, bool, error) {
	f := ControlFrame{Type: b[0]}
	switch {
	case f.Type == ControlDoorbell:
		f.Length = 1
		return f, true, nil
	case f.Type != ControlSegment && f.Type < ControlSkippedMin:
		return ControlFrame{}, false, ViolationFrame
	case len(b) < ControlHeadBytes:
		return ControlFrame{}, false, nil
	}
	f.Descriptors = int(b[ControlFrameDescriptorsOffset])
	f.Length = int(binary.LittleEndian.Uint16(b[ControlFrameLengthOffset:]))
	low, isCount := ControlHeadBytes, f.Descriptors <= ControlDescriptorsMax
	if f.Type == ControlSegment {
		low, isCount = controlSegmentBytes, f.Descriptors == 1
	}
	if !isCount || f.Length < low || f.Length > ControlFrameMax {
		return ControlFrame{}, false, ViolationFrame
	}
	if len(b) < f.Length {
		return ControlFrame{}, false, nil
	}
	if f.Type == ControlSegment {
		f.Segment = binary.LittleEndian.Uint32(b[ControlSegmentNumberOffset:])
	}
	return f, true, nil
}

// AppendControlSegment appends to dst the frame that brings the descriptor of a segment (SPEC 5.4).
func AppendControlSegment(dst []byte, number uint32) []byte {
	dst = append(dst, ControlSegment, 1)
	dst = binary.LittleEndian.AppendUint16(dst, controlSegmentBytes)
	return binary.LittleEndian.AppendUint32(dst, number)
}

const controlSegmentBytes = 8

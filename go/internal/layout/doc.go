// SPDX-License-Identifier: MIT OR Apache-2.0

// Package layout holds the bytes of the Partywall protocol, version 2, as spec/SPEC.md defines
// them: frames of the handshake, the header of a region, records, and frames of the control socket.
//
//	frame    HELLO, OFFER, READY, REJECT               SPEC 2.2
//	region   header page, identity                     SPEC 3.2, 3.4
//	record   word0, len and stream, body               SPEC 4, 5, 11
//	control  doorbells and frames after the handshake  SPEC 6.7
//
// It also has the rules for the order in which the records of one direction may come: [Channel] and
// [Session]. The package reads only memory that the caller owns. It opens no descriptor, maps no
// memory, and starts no goroutine. A breach of a rule is a [Violation].
package layout

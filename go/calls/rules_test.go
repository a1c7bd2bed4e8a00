// SPDX-License-Identifier: MIT OR Apache-2.0

package calls

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// Messages made at random have the outcome that the rules of CALLS 1 to 5 demand. The method rule
// states these rules a second time, independently of the code. After a violation, the session goes
// on.
func TestMessagesByChanceHaveTheOutcomeOfTheRules(t *testing.T) {
	seeds := uint64(120)
	if raceEnabled || testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(12, seed))
		v := vector{reader: "server"}
		if seed%2 == 1 {
			v.reader, v.made = "client", random.IntN(4)
		}
		last := uint64(0)
		for range random.IntN(12) {
			message := messageByChance(random)
			v.messages = append(v.messages, message)
			if v.outcome = v.rule(message, &last); v.outcome != 0 {
				break // the reader of calls stops at a violation
			}
		}
		opened, accepted := streams(t, ways()[0])
		var outcome uint32
		if v.reader == "server" {
			outcome = v.serve(t, accepted, raw{opened})
		} else {
			outcome = v.call(t, accepted, raw{opened})
		}
		if outcome != v.outcome {
			t.Errorf("seed %d: %x are %d to a %s, want %d", seed, v.messages, outcome, v.reader, v.outcome)
		}
		if err := opened.Session().Ping(testContext(t)); err != nil {
			t.Errorf("seed %d: the session does not go on: %v", seed, err)
		}
	}
}

// messageByChance returns a random message. Most such messages are frames, and most of these have
// an allowed kind and id.
func messageByChance(random *rand.Rand) []byte {
	message := make([]byte, headerBytes+random.IntN(2)*random.IntN(40))
	message[0] = byte(1 + random.IntN(5))
	binary.LittleEndian.PutUint64(message[8:], 1+random.Uint64N(6))
	if message[0] == 3 {
		message = message[:headerBytes]
	}
	switch random.IntN(24) {
	case 0:
		message[random.IntN(headerBytes)] = byte(random.IntN(256))
	case 1:
		message = message[:random.IntN(headerBytes)]
	}
	return message
}

// rule returns the number of the rule that the message breaks, or 0 if it breaks none. The argument
// last points to the highest id of the calls before this message.
func (v vector) rule(message []byte, last *uint64) uint32 {
	if len(message) < headerBytes {
		return 721
	}
	kind, word := message[0], binary.LittleEndian.Uint32(message[4:])
	id := binary.LittleEndian.Uint64(message[8:])
	isCall := kind == 1 || kind == 2
	switch {
	case message[1]|message[2]|message[3] != 0, id == 0, kind == 0, kind > 5:
		return 722
	case kind == 3 && len(message) > headerBytes, (kind == 3 || kind == 4) && word != 0:
		return 722
	case (kind <= 3) != (v.reader == "server"):
		return 723
	case isCall && id <= *last:
		return 724
	case v.reader == "client" && id > uint64(v.made):
		return 725
	}
	if isCall {
		*last = id
	}
	return 0
}

// SPDX-License-Identifier: MIT OR Apache-2.0

/** Messages between two Linux processes through shared memory. */
module partywall {
    exports dev.partywall;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rule 13: where atomics may be used, and that each memory order is explained.
//!
//! ```text
//! crates/ring/src/sync.rs     the only file that names core::sync::atomic or loom
//! crates/ring/src/*.rs        may use orderings; each within 6 lines of an `// ORDER:` comment
//! ALLOWED                     private memory of one process, with the reason
//! anywhere else               a finding
//! ```
//! `ALLOWED` lists the files outside the ring that may use orderings, each with the reason.

use super::Finding;
use super::source::{Line, Source, has_word};
use crate::tree::Tree;

/// Reports memory orders of atomics in files that may not have them, or without a comment that
/// explains them.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, source) in tree.rust() {
        if path.starts_with(RING) {
            check_ring(path, source, findings);
        } else if !ALLOWED.iter().any(|(prefix, _)| path.starts_with(prefix)) && !is_test(path) {
            for (index, _) in source.shipped().filter(|(_, line)| orders(&line.code)) {
                let advice = "memory orders belong in crates/ring/src/; for memory of one process, prefer \
                              a lock or channel, or add the file with a reason to ALLOWED in \
                              xtask/src/tidy/atomics.rs";
                findings.push(Finding::at(path, index, "ordering", advice));
            }
        }
    }
}

fn check_ring(path: &str, source: &Source, findings: &mut Vec<Finding>) {
    for (index, line) in source.shipped() {
        if path != SYNC && names_atomics(&line.code) {
            let advice = "import it from crate::sync, which is loom's in a loom build";
            findings.push(Finding::at(path, index, "atomics-import", advice));
        }
        if orders(&line.code) && !is_explained(&source.lines, index) {
            let advice = format!(
                "add `// ORDER:` at most {ORDER_LINES_MAX} lines above: which access it pairs with, \
                 and what becomes visible"
            );
            findings.push(Finding::at(path, index, "order-comment", advice));
        }
    }
}

/// Whether the file is a test. Threads of one test share private memory, and no memory order of a
/// test is part of the protocol.
fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part == "tests")
}

fn names_atomics(code: &str) -> bool {
    ["core::sync::atomic", "std::sync::atomic", "loom::"].iter().any(|path| code.contains(path))
}

/// Whether the code uses a memory order: `Ordering::X`, or a bare `X` as an argument.
fn orders(code: &str) -> bool {
    let import = code.trim_start();
    if import.starts_with("use ") || import.starts_with("pub use ") {
        return false;
    }
    ORDERS.iter().any(|order| {
        code.contains(&format!("Ordering::{order}"))
            || (has_word(code, order) && is_argument(code, order))
    })
}

fn is_argument(code: &str, order: &str) -> bool {
    code.match_indices(order).any(|(at, _)| {
        let before = code[..at].trim_end().chars().next_back();
        let after = code[at + order.len()..].trim_start().chars().next();
        matches!(before, Some('(' | ',')) && matches!(after, Some(')' | ','))
    })
}

fn is_explained(lines: &[Line], index: usize) -> bool {
    let from = index.saturating_sub(ORDER_LINES_MAX);
    lines[from..=index].iter().any(|line| line.comment.contains("ORDER:"))
}

const RING: &str = "crates/ring/src/";
const SYNC: &str = "crates/ring/src/sync.rs";
const ORDER_LINES_MAX: usize = 6;
const ORDERS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

/// Files outside the crate `ring` that may use memory orders of atomics, each with the reason. A
/// `/` at the end means a directory.
const ALLOWED: &[(&str, &str)] = &[
    ("xtask/", "runs in the build, shares no memory"),
    ("crates/testkit/", "scaffolding of tests: a counter that numbers addresses"),
    (
        "crates/sys/src/biased.rs",
        "a counter that numbers threads; the protocol is ring/src/bias.rs",
    ),
    (
        "crates/sys/src/fork.rs",
        "a private word that fork() wipes; asked on each send and receive, so no lock",
    ),
    (
        "crates/sys/src/shared.rs",
        "memory of other protocols that two processes write: as ring/src/mem.rs, with each order explained",
    ),
    ("crates/sys/src/sigbus.rs", "the table of a signal handler, which may take no lock"),
    (
        "crates/partywall/src/session/shared.rs",
        "whether a user has woken the driver: asked before each turn of the driver, so no lock",
    ),
    (
        "crates/partywall/src/protocol/driver_waker.rs",
        "whether a driver sleeps: asked by whoever drops a message, so no lock",
    ),
    (
        "crates/shmipc/src/transport/heap.rs",
        "a sum of bytes, changed by whoever drops a message, so no lock",
    ),
    (
        "crates/partywall/src/transport/protocol/streams.rs",
        "a hint asked before every message, so no lock",
    ),
    ("crates/shmipc/src/transport/streams.rs", "a hint asked before every message, so no lock"),
    ("crates/shmipc/src/transport/space_waiter.rs", "a hint for who looks whether there is room"),
    (
        "crates/shmipc/src/transport/counters.rs",
        "counters; nothing is read on the strength of them",
    ),
    (
        "crates/shmipc/src/region/slice_cache.rs",
        "how many slices may be kept; nothing depends on it",
    ),
    ("crates/shmipc/src/region/mod.rs", "a note that a region is not for new sessions"),
    (
        "crates/shmipc/src/region/list.rs",
        "a counter, and a hint that a list is broken; each slice is checked anyway",
    ),
    (
        "crates/partywall/src/session/deferred_credit.rs",
        "whether the driver sleeps: asked by whoever leaves credit to it, so no lock",
    ),
    (
        "crates/partywall/src/session/stream.rs",
        "a hint that sending is over; whoever acts on it asks again under the lock",
    ),
    (
        "crates/partywall/src/transport/shm/segments.rs",
        "how many views were given back: written under a lock that another struct has",
    ),
    (
        "crates/partywall/src/transport/shm/mod.rs",
        "the word that both ends compare in every call: after a fork or a violation it differs",
    ),
    ("crates/partywall/src/transport/shm/sender.rs", "reads that word for every message"),
    ("crates/partywall/src/transport/shm/receiver.rs", "reads that word for every message"),
    ("crates/partywall/src/transport/shm/model.rs", "a count of a model, under shuttle only"),
    (
        "crates/shmipc/src/transport/metrics.rs",
        "counters that any thread adds to; nothing is read on their strength",
    ),
    (
        "crates/shmipc/src/transport/control.rs",
        "flags that each say that something happened once; who acts on them holds a lock, or does no harm",
    ),
    (
        "crates/shmipc/src/transport/outlet.rs",
        "a hint that something is left to be written; written in order under the lock in any case",
    ),
    (
        "crates/link/src/end/mod.rs",
        "reads the word that fork() wipes, on each send and receive, as channels do",
    ),
    (
        "crates/link/src/link_state/peer_memory.rs",
        "reads a flag of a signal handler after each copy; the flag is explained in sys",
    ),
    ("crates/shmipc/src/pool/mod.rs", "a number to count by, of calls on any thread"),
    ("crates/shmipc/src/connections.rs", "a number to count by, of handshakes on any thread"),
    ("crates/cli/src/command/signals.rs", "the flag of a signal handler, which may take no lock"),
];

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    const LOAD: &str = "fn f(a: &A) -> u64 {\n    a.load(Ordering::Acquire)\n}\n";

    #[test]
    fn orders_stay_in_the_ring() {
        let findings = findings_of(check, &[("crates/partywall/src/region.rs", LOAD)]);
        assert!(
            findings[0].starts_with("crates/partywall/src/region.rs:2: ordering"),
            "{findings:?}"
        );
        let comparing = "fn f() -> Ordering { Ordering::Less }\n// Ordering::SeqCst\n";
        assert!(findings_of(check, &[("crates/partywall/src/region.rs", comparing)]).is_empty());
        assert!(findings_of(check, &[("crates/partywall/tests/kill.rs", LOAD)]).is_empty());
    }

    #[test]
    fn each_order_in_the_ring_is_explained() {
        let explained = "// ORDER: pairs with the Release in publish.\nx.load(Acquire);\n";
        assert!(findings_of(check, &[("crates/ring/src/park.rs", explained)]).is_empty());
        let far = format!("// ORDER: pairs.\n{}x.load(Acquire);\n", "a();\n".repeat(6));
        let findings = findings_of(check, &[("crates/ring/src/park.rs", &far)]);
        assert!(
            findings[0].starts_with("crates/ring/src/park.rs:8: order-comment"),
            "{findings:?}"
        );
        assert_eq!(findings_of(check, &[("crates/ring/src/park.rs", LOAD)]).len(), 1);
        let names = "use crate::sync::Ordering::{Acquire, Release};\nstruct Release;\n";
        assert!(findings_of(check, &[("crates/ring/src/park.rs", names)]).is_empty());
    }

    #[test]
    fn only_sync_imports_atomics() {
        let import = "pub use core::sync::atomic::AtomicU64;\n";
        assert!(findings_of(check, &[("crates/ring/src/sync.rs", import)]).is_empty());
        let findings = findings_of(check, &[("crates/ring/src/park.rs", import)]);
        assert!(findings[0].contains("atomics-import"), "{findings:?}");
    }
}

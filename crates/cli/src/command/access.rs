// SPDX-License-Identifier: MIT OR Apache-2.0
//! Explains why this process may not inspect another process, in words that say what to do.

use std::fs;
use std::io::{self, ErrorKind};

/// Explains an error of reading the directory of process `pid` in `/proc`.
pub fn explain(pid: u32, error: io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::PermissionDenied => anyhow::anyhow!(
            "not allowed to inspect process {pid}: {}",
            missing_right(&fs::read_to_string("/proc/self/status").unwrap_or_default())
        ),
        ErrorKind::NotFound => anyhow::anyhow!("process {pid} has just ended"),
        _ => anyhow::Error::new(error).context(format!("inspecting process {pid} failed")),
    }
}

fn missing_right(status: &str) -> &'static str {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    // The line `Uid:` of `status` lists the real, effective, saved and file system user id. The
    // effective one decides whether the process has the rights of root.
    let is_root = field("Uid:").is_some_and(|users| users.get(1).is_some_and(|user| user == "0"));
    let capabilities =
        field("CapEff:").and_then(|fields| u64::from_str_radix(fields.first()?, 16).ok());
    match capabilities {
        Some(bits) if bits & CAP_SYS_PTRACE != 0 => {
            "this process has CAP_SYS_PTRACE, so a security module (SELinux, AppArmor, Yama) forbids \
             it, or the other process is in a user namespace outside of this one"
        }
        _ if is_root => {
            "root lacks the capability CAP_SYS_PTRACE here, as in most containers: run this on the \
             host, or give it to the container (docker run --cap-add SYS_PTRACE)"
        }
        _ => "run this as its user, or as root",
    }
}

/// The capability CAP_SYS_PTRACE, which allows a process to inspect others: bit 19 of the effective
/// capabilities.
const CAP_SYS_PTRACE: u64 = 1 << 19;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_right_is_named() {
        let status = |user: u32, bits: &str| {
            missing_right(&format!("Name:\tx\nUid:\t1\t{user}\t1\t1\nCapEff:\t{bits}\n"))
        };
        assert_eq!(status(1000, "0000000000000000"), "run this as its user, or as root");
        // The capability bits in this test are those that docker gives to root in a container;
        // `CAP_SYS_PTRACE` is not among them.
        assert!(status(0, "00000000a80425fb").contains("--cap-add SYS_PTRACE"));
        assert!(status(0, "000001ffffffffff").contains("a security module"));
        assert!(status(1000, "0000000000080000").contains("a security module"));
        assert_eq!(missing_right(""), "run this as its user, or as root");
    }
}

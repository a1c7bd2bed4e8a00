// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that creating shared memory fails with an error that names the remedy if the file size is
//! limited. If the library did not check the limit, the kernel would send SIGXFSZ, which kills the
//! process.

use partywall_sys::probe::{Feature, probe};
use partywall_sys::{MemfdError, OwnMap};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn memfd_beyond_file_size_limit_is_error() {
    let _alone = crate::alone();
    let before = getrlimit(Resource::Fsize);
    let low = Rlimit { current: Some(100_000), maximum: before.maximum };
    setrlimit(Resource::Fsize, low).unwrap();
    assert!(OwnMap::create("small", 64 << 10).is_ok());
    let error = OwnMap::create("large", 128 << 10).unwrap_err();
    assert!(matches!(error, MemfdError::FileSizeLimit { .. }), "{error}");
    assert!(error.to_string().contains("ulimit -f"));
    setrlimit(Resource::Fsize, Rlimit { current: Some(4096), ..low }).unwrap();
    assert!(probe(Feature::SealableMemfd).is_err() && probe(Feature::Region).is_err());
    setrlimit(Resource::Fsize, before).unwrap();
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol shmipc, which sessions speak as server and as client.
//!
//! ```text
//!   Shmipc ─┬─ SessionListener(…, shmipc)   serves clients of shmipc, too
//!           └─ connect_session(…, shmipc)   a session with a server of shmipc
//! ```

use crate::error;
use crate::setting_value::{choice, in_range, whole};
use partywall_shmipc::{Config, HandoverState, MemMapType, SizePercentPair};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::Arc;

/// The protocol shmipc with its settings, each a keyword with a default: `Shmipc(queue_cap=1024)`.
/// All sessions that one object connects share one buffer region.
///
/// | keyword | value |
/// |---|---|
/// | queue_cap | elements of a queue: a multiple of 16 |
/// | share_memory_buffer_cap | bytes of the buffer region |
/// | buffer_slice_sizes | pairs: bytes of a slice, percent of the buffer region (in all 100) |
/// | share_memory_path_prefix | the beginning of the names of buffer regions |
/// | mem_map_type | "memfd" or "file" |
/// | directory | where a server opens files that clients name |
/// | region_bytes_max, fallback_unread_max, fallback_message_max | bytes |
/// | queue_entries_max | elements |
/// | files_without_credentials | whether clients without credentials may name files |
/// | guard_against_truncation | whether a file that its peer truncates ends only the session |
#[pyclass(frozen, module = "partywall._native")]
pub struct Shmipc {
    inner: Arc<partywall_shmipc::Shmipc>,
}

impl Shmipc {
    pub fn protocol(&self) -> Arc<partywall_shmipc::Shmipc> {
        Arc::clone(&self.inner)
    }
}

#[pymethods]
impl Shmipc {
    #[new]
    #[pyo3(signature = (**settings))]
    fn new(py: Python<'_>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut config = Config::default();
        for (key, value) in settings.into_iter().flatten() {
            config = with(config, &key.extract::<String>()?, &value)?;
        }
        let made = partywall_shmipc::Shmipc::new(config);
        Ok(Self { inner: Arc::new(made.map_err(|error| error::exception(py, &error))?) })
    }

    /// Begins a hot restart: sends the clients of all accepted sessions to the process that listens
    /// at the address now. `epoch` is at least 1, and differs from that of an earlier restart.
    /// Streams in use go on. The hot restart is over after 2 seconds at most.
    fn hot_restart(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        let begun = py.detach(|| self.inner.hot_restart(epoch));
        begun.map_err(|error| error::exception(py, &error))
    }

    /// The state of the last hot restart: "never", "pending", "done" or "timed_out".
    #[getter]
    fn hot_restart_state(&self, py: Python<'_>) -> &'static str {
        match py.detach(|| self.inner.hot_restart_state()) {
            HandoverState::Never => "never",
            HandoverState::Pending { .. } => "pending",
            HandoverState::Done { .. } => "done",
            HandoverState::TimedOut { .. } => "timed_out",
        }
    }
}

/// Returns the settings with the setting `key` changed to `value`.
fn with(config: Config, key: &str, value: &Bound<'_, PyAny>) -> PyResult<Config> {
    Ok(match key {
        "queue_cap" => config.queue_cap(whole(key, value)?),
        "share_memory_buffer_cap" => config.share_memory_buffer_cap(whole(key, value)?),
        "buffer_slice_sizes" => config.buffer_slice_sizes(slices(key, value)?),
        "share_memory_path_prefix" => config.share_memory_path_prefix(value.extract::<String>()?),
        "mem_map_type" => config.mem_map_type(choice(key, value, &MEM_MAP_TYPES)?),
        "directory" => config.directory(value.extract::<PathBuf>()?),
        "region_bytes_max" => config.region_bytes_max(whole(key, value)?),
        "queue_entries_max" => config.queue_entries_max(whole(key, value)?),
        "fallback_unread_max" => config.fallback_unread_max(whole(key, value)?),
        "fallback_message_max" => config.fallback_message_max(whole(key, value)?),
        "files_without_credentials" => config.files_without_credentials(value.extract()?),
        "guard_against_truncation" => config.guard_against_truncation(value.extract()?),
        _ => return Err(error::unknown_setting("partywall.shmipc.Shmipc", key)),
    })
}

fn slices(key: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<SizePercentPair>> {
    let takes = "pairs of a size in bytes and a percent";
    let pairs: Vec<(u32, u32)> =
        value.extract().map_err(|raised| in_range(key, value, takes, raised))?;
    Ok(pairs.into_iter().map(|(size, percent)| SizePercentPair { size, percent }).collect())
}

const MEM_MAP_TYPES: [(&str, MemMapType); 2] =
    [("memfd", MemMapType::MemFd), ("file", MemMapType::DevShmFile)];

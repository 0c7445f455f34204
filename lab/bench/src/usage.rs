//! The resources that this process uses.

use anyhow::{Context, Result};

/// Returns the CPU time that this process has used.
pub(super) fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the resident memory of this process.
pub(super) fn resident_bytes() -> Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).context("/proc/self/statm")?.parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}

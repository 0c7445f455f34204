//! Linux Soft-RoCE in a guest, and Remora, over a bridge: `make interop` starts the tests.
//! docs/guides/soft-roce.md
//! describes the requirements and the tests.
//!
//! The tests are ignored elsewhere. The variable `REMORA_GUEST` is the folder with the guest's kernel.
//! `REMORA_WHOLE=1` runs everything (`make interop-full`).

mod capture;
mod guest;
mod network;
mod programs;
mod rows;
mod rping;

use std::path::PathBuf;
use std::time::Duration;

/// Time limit of a program. An emulated guest is slow if the machine has other work.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the folder of the guest's kernel.
fn image() -> PathBuf {
    std::env::var_os("REMORA_GUEST").expect("set by `make interop`, which starts the guest").into()
}

/// Returns whether everything runs, or only the quick part.
fn is_whole() -> bool {
    std::env::var_os("REMORA_WHOLE").is_some()
}

//! Linux Soft-RoCE in a guest, and Remora, over a bridge: `make interop` starts the tests.
//! docs/guides/soft-roce.md
//! describes the requirements and the tests.
//!
//! Without the variable `REMORA_GUEST`, the folder with the guest's kernel, nothing runs here.
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

/// The folder of the guest's kernel; `None` if no guest is wanted.
fn image() -> Option<PathBuf> {
    let folder = std::env::var_os("REMORA_GUEST").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("not run: `make interop` starts the guest");
    }
    folder
}

/// Returns whether everything runs, or only the quick part.
fn is_whole() -> bool {
    std::env::var_os("REMORA_WHOLE").is_some()
}

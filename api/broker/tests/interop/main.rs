//! Linux Soft-RoCE in a guest, and Remora, over a bridge: `make interop` starts it. docs/INTEROP.md says what
//! is needed and what runs.
//!
//! Without the variable `REMORA_GUEST`, the folder that has the guest's kernel, nothing runs here.
//! `REMORA_WHOLE=1` runs everything (`make interop-full`).

mod capture;
mod guest;
mod network;
mod programs;
mod rows;
mod rping;

use std::path::PathBuf;
use std::time::Duration;

/// Time in which a program must have ended. An emulated guest is slow where the machine has other work.
const LIMIT: Duration = Duration::from_secs(60);

/// The folder of the guest's kernel; none where no guest is wanted.
fn image() -> Option<PathBuf> {
    let folder = std::env::var_os("REMORA_GUEST").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("not run: `make interop` starts the guest");
    }
    folder
}

/// Does everything run, or the quick part?
fn is_whole() -> bool {
    std::env::var_os("REMORA_WHOLE").is_some()
}

//! Removal of folders of processes that were killed, whose locks nobody holds any more.

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The beginning of the names of these folders.
pub(super) const BEGIN: &str = "remora-paths-";
/// The file in the folder that its process locks.
pub(super) const LOCK: &str = "lock";
/// Maximum number of folders that are examined.
const MOST: usize = 1024;

/// Locks a fresh folder for as long as the returned file is open.
pub(super) fn lock(folder: &Path) -> io::Result<File> {
    let file = File::create(folder.join(LOCK))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Removes folders of this user that no process uses.
pub(super) fn sweep_in(temporary: &Path) {
    let own = remora_host::packet::own_uid();
    let Ok(entries) = fs::read_dir(temporary) else { return };
    let named = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(BEGIN));
    for entry in named.take(MOST) {
        let is_own = entry.metadata().is_ok_and(|data| data.is_dir() && data.uid() == own);
        if !is_own {
            continue;
        }
        // A folder without the file is just being created.
        let Ok(file) = File::open(entry.path().join(LOCK)) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_killed_broker_goes_and_that_of_a_running_one_stays() {
        let temporary = tempfile::tempdir().expect("a folder").keep();
        let make = |name: &str| {
            let folder = temporary.join(format!("{BEGIN}{name}"));
            fs::create_dir_all(&folder).unwrap();
            folder
        };
        let running = make("running");
        let killed = make("killed");
        let fresh = make("fresh");
        let held = lock(&running).unwrap();
        drop(lock(&killed).unwrap());
        sweep_in(&temporary);
        assert!(running.exists() && !killed.exists() && fresh.exists());
        drop(held);
        fs::remove_dir_all(temporary).unwrap();
    }
}

//! A copy of a broker's tree, for a program whose mount namespace does not have the broker's folder, such as
//! the other containers of a pod. The broker sends a descriptor of its folder, which is usable in every
//! namespace.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, readlinkat, statat};

use super::{DEVICE, sweep};
use crate::paths::PrivateFolder;

/// Time within which the copy shows a change of the port.
const FOLLOW: Duration = Duration::from_millis(100);
/// The folders below the port's folder whose entries a broker replaces.
const CHANGING: [&str; 4] = ["", "gids", "gid_attrs/types", "gid_attrs/ndevs"];
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A copy that follows the broker's tree while this value lives.
#[derive(Debug)]
pub(crate) struct CopiedTree {
    home: PrivateFolder,
    /// The thread that updates the copy; it ends when the sender is dropped. Both are `None` only within
    /// `drop`.
    follower: Option<JoinHandle<()>>,
    end: Option<Sender<()>>,
}

impl CopiedTree {
    /// Copies the tree that is open at `tree` into a folder of this process.
    ///
    /// # Errors
    /// The operating system refuses a folder, a file or a thread.
    pub(crate) fn new(tree: OwnedFd) -> io::Result<CopiedTree> {
        let home = PrivateFolder::new(|_| true)?;
        let seen = signature(tree.as_fd())?;
        copy(tree.as_fd(), home.path())?;
        let (end, ended) = channel();
        let destination = home.path().join(DEVICE).join("ports/1");
        let mut follower = Follower { tree, destination, seen, again: true };
        let thread = remora_port::spawn_settled("remora-paths".to_owned(), move || {
            while ended.recv_timeout(FOLLOW) == Err(RecvTimeoutError::Timeout) {
                // When the broker is gone, so is its tree, and the copy stays as it was.
                let _ = follower.follow();
            }
        })?;
        Ok(CopiedTree { home, follower: Some(thread), end: Some(end) })
    }

    /// The folder of the copy.
    pub(crate) fn folder(&self) -> &Path {
        self.home.path()
    }
}

impl Drop for CopiedTree {
    /// Waits for the thread, which would otherwise write into the folder while it is removed.
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.follower.take() {
            let _ = thread.join();
        }
    }
}

/// Copies the entries that the broker replaces.
struct Follower {
    tree: OwnedFd,
    /// The port's folder in the copy.
    destination: PathBuf,
    seen: Signature,
    /// Requests one more copy: the last one may have begun within the same tick of the file system's clock as
    /// a change.
    again: bool,
}

/// The modification times of the folders.
type Signature = [(i64, u64); CHANGING.len()];

impl Follower {
    fn follow(&mut self) -> io::Result<()> {
        let now = signature(self.tree.as_fd())?;
        if now == self.seen && !self.again {
            return Ok(());
        }
        self.again = now != self.seen;
        self.seen = now;
        copy(openat(&self.tree, port(""), FOLDER, Mode::empty())?.as_fd(), &self.destination)
    }
}

fn port(folder: &str) -> String {
    format!("{DEVICE}/ports/1/{folder}")
}

fn signature(tree: BorrowedFd<'_>) -> io::Result<Signature> {
    let mut times = Signature::default();
    for (time, folder) in times.iter_mut().zip(CHANGING) {
        let stat = statat(tree, port(folder), AtFlags::empty())?;
        *time = (stat.st_mtime as i64, stat.st_mtime_nsec as u64);
    }
    Ok(times)
}

/// Makes the folder `destination` a copy of the folder that is open at `source`. A reader sees the old or the
/// new content of a file.
fn copy(source: BorrowedFd<'_>, destination: &Path) -> io::Result<()> {
    fs::create_dir_all(destination)?;
    let mut names = Vec::new();
    for entry in Dir::read_from(source)? {
        let entry = entry?;
        let name = Path::new(std::ffi::OsStr::from_bytes(entry.file_name().to_bytes())).to_owned();
        if [".", "..", sweep::LOCK, ".new"].iter().any(|other| name == Path::new(other)) {
            continue;
        }
        let stat = match statat(source, &name, AtFlags::SYMLINK_NOFOLLOW) {
            // The entry was removed in the meantime, and the next copy shows that.
            Err(rustix::io::Errno::NOENT) => continue,
            done => done?,
        };
        let target = destination.join(&name);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => copy(openat(source, &name, FOLDER, Mode::empty())?.as_fd(), &target)?,
            FileType::Symlink if fs::symlink_metadata(&target).is_err() => {
                let leads = readlinkat(source, &name, Vec::new())?;
                symlink(std::ffi::OsStr::from_bytes(leads.to_bytes()), &target)?;
            }
            FileType::RegularFile => copy_file(source, &name, &target)?,
            _ => {}
        }
        names.push(name);
    }
    for entry in fs::read_dir(destination)? {
        let entry = entry?;
        let is_kept = names.iter().any(|name| name.as_os_str() == entry.file_name());
        if !is_kept && entry.file_type()?.is_file() && entry.file_name() != sweep::LOCK {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn copy_file(source: BorrowedFd<'_>, name: &Path, target: &Path) -> io::Result<()> {
    let mut bytes = Vec::new();
    match openat(source, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        opened => File::from(opened?).read_to_end(&mut bytes)?,
    };
    let new = target.with_file_name(".new");
    File::create(&new)?.write_all(&bytes)?;
    fs::rename(new, target)
}

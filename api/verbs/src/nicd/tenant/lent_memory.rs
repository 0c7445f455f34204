//! Memory that program and NIC share.

use remora_host::wait_readable;
use remora_memory::Bytes;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::super::users::Claim;

/// A file of memory: its file system and its number there.
type File = (u64, u64);

/// The memory that a tenant's objects use. One file may serve several objects, such as a send queue and the
/// code region over its slots.
#[derive(Clone, Default)]
pub(super) struct LentMemories {
    users: Arc<Mutex<BTreeMap<File, usize>>>,
}

/// Memory of a program that an object of the NIC uses. When the last object that uses it ends, its pages are
/// freed, although the program may keep the descriptor: from then on the kernel charges pages to the program
/// that touches them.
pub(super) struct LentMemory {
    bytes: Bytes,
    file: Option<File>,
    all: LentMemories,
}

/// Memory of running programs whose regions have ended. The programs still use it, so its pages are not freed
/// and stay claimed.
#[derive(Default)]
pub(in crate::nicd) struct Outliving(Mutex<Vec<Outlived>>);

struct Outlived {
    process: Arc<OwnedFd>,
    _memory: Vec<LentMemory>,
    _claim: Option<Claim>,
}

impl Outliving {
    /// Frees the memory of the programs that have ended since the last call.
    pub(in crate::nicd) fn sweep(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|memory| is_running(&memory.process));
    }
}

/// The program whose own memory a region has.
pub(super) struct MemoryOwner {
    pub process: Arc<OwnedFd>,
    pub outliving: Arc<Outliving>,
}

impl MemoryOwner {
    /// Keeps the memory of a region that ends, if the program is still running.
    pub(super) fn keep(self, memory: Vec<LentMemory>, claim: Option<Claim>) {
        let MemoryOwner { process, outliving } = self;
        if is_running(&process) {
            let outlived = Outlived { process, _memory: memory, _claim: claim };
            outliving.0.lock().unwrap_or_else(PoisonError::into_inner).push(outlived);
        }
    }
}

fn is_running(process: &OwnedFd) -> bool {
    !wait_readable(process.as_fd(), Some(Duration::ZERO)).unwrap_or(false)
}

impl LentMemories {
    /// Counts one more user of this memory.
    pub(super) fn lend(&self, bytes: Bytes) -> LentMemory {
        let status = bytes.fd().and_then(|fd| rustix::fs::fstat(fd).ok());
        let file = status.map(|status| (status.st_dev, status.st_ino));
        if let Some(file) = file {
            *self.users.lock().unwrap_or_else(PoisonError::into_inner).entry(file).or_default() += 1;
        }
        LentMemory { bytes, file, all: self.clone() }
    }

    /// Counts one user less. Returns true if it was the last.
    fn end(&self, file: File) -> bool {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = users.get_mut(&file) else { return false };
        *count -= 1;
        let last = *count == 0;
        if last {
            users.remove(&file);
        }
        last
    }
}

impl LentMemory {
    pub(super) fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        use rustix::fs::{FallocateFlags, fallocate};
        let last = self.file.is_some_and(|file| self.all.end(file));
        if let (Some(file), true) = (self.bytes.fd(), last) {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // On an error the pages stay for as long as the program keeps the descriptor.
            let _ = fallocate(file, hole, 0, self.bytes.len() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    #[test]
    fn memory_of_a_program_is_freed_after_the_end_of_the_process() {
        let mut program = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = Arc::new(pidfd_open(Pid::from_child(&program), PidfdFlags::empty()).unwrap());
        let bytes = Bytes::memfd("test", 4096).unwrap();
        bytes.write(0, b"its own").unwrap();
        let outliving = Arc::new(Outliving::default());
        let owner = MemoryOwner { process, outliving: Arc::clone(&outliving) };
        owner.keep(vec![LentMemories::default().lend(bytes.clone())], None);
        let content = || {
            let mut content = [0; 7];
            bytes.read(0, &mut content).unwrap();
            content
        };
        outliving.sweep();
        assert_eq!(content(), *b"its own");
        program.kill().unwrap();
        program.wait().unwrap();
        outliving.sweep();
        assert_eq!(content(), [0; 7]);
    }
}

//! Memory mappings of this process.
//!
//! Mappings are populated when they are made, because a page fault in the middle of a message costs
//! more than the message. Populating writes to each page: a shared page that was only read is mapped
//! read-only.

use crate::Error;
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

const HUGE: usize = 2 << 20;

/// An owned mapping; dropping it unmaps the pages.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub start: NonNull<u8>,
    pub len: usize,
    /// The memfd that is mapped; `None` for anonymous pages.
    pub fd: Option<OwnedFd>,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length, and no `Bytes` is left that could reach it.
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.len);
        }
    }
}

fn last_error() -> Error {
    Error::Os(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Returns populated pages of this process, in huge pages where available.
pub(crate) fn anonymous(len: usize) -> Result<Mapping, Error> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let huge = len >= HUGE;
    // Huge pages need 2 MiB alignment: map more, and unmap both ends.
    let len_with_slack = if huge { len.checked_add(HUGE).ok_or(Error::Invalid)? } else { len };
    let start = map(len_with_slack, flags, -1)?;
    if huge {
        let skip = start.align_offset(HUGE);
        let len_pages = len.next_multiple_of(page());
        // SAFETY: both ends lie in the fresh mapping and outside the part that is kept.
        let start = unsafe {
            if skip > 0 {
                libc::munmap(start.as_ptr().cast(), skip);
            }
            let start = start.add(skip);
            let rest = len_with_slack.next_multiple_of(page()) - skip - len_pages;
            if rest > 0 {
                libc::munmap(start.add(len_pages).as_ptr().cast(), rest);
            }
            // This is only advice: if the kernel refuses it, the pages are small.
            libc::madvise(start.as_ptr().cast(), len_pages, libc::MADV_HUGEPAGE);
            start
        };
        return populate(Mapping { start, len, fd: None });
    }
    populate(Mapping { start, len, fd: None })
}

/// Pages that are not populated.
pub(crate) fn lazy(len: usize) -> Result<Mapping, Error> {
    let start = map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)?;
    Ok(Mapping { start, len, fd: None })
}

/// Returns the mapping of a new memfd.
pub(crate) fn memfd(name: &str, len: usize) -> Result<Mapping, Error> {
    let name = CString::new(name).map_err(|_| Error::Invalid)?;
    let size = libc::off_t::try_from(len).map_err(|_| Error::Invalid)?;
    if size == 0 {
        return Err(Error::Invalid);
    }
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // glibc has a function for this system call only since version 2.27.
    // SAFETY: the name is a C string; the result is checked.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags) };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(last_error)?;
    // SAFETY: a new descriptor that nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // The file is sealed against shrinking: a peer that truncated it would kill this process by SIGBUS.
    // It is sealed against further seals, by which a peer would make it read-only for others.
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the descriptor is ours, and the other arguments are integers.
    let made = unsafe {
        libc::ftruncate(fd.as_raw_fd(), size) == 0
            && libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) == 0
    };
    if made { share(fd, len) } else { Err(last_error()) }
}

/// Returns a mapping of a memfd that is sealed against shrinking and has the expected length.
pub(crate) fn from_memfd(fd: OwnedFd, expected: Option<usize>) -> Result<Mapping, Error> {
    // SAFETY: fstat fills the struct that it is given; zero is a value of it.
    let (status, stat) = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd.as_raw_fd(), &mut stat), stat)
    };
    if status != 0 {
        return Err(last_error());
    }
    // SAFETY: our descriptor.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    let len = usize::try_from(stat.st_size).map_err(|_| Error::Invalid)?;
    let expected = expected.is_none_or(|expected| expected == len);
    if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 || len == 0 || !expected {
        return Err(Error::Invalid);
    }
    share(fd, len)
}

fn share(fd: OwnedFd, len: usize) -> Result<Mapping, Error> {
    let start = map(len, libc::MAP_SHARED, fd.as_raw_fd())?;
    populate(Mapping { start, len, fd: Some(fd) })
}

fn map(len: usize, flags: libc::c_int, fd: libc::c_int) -> Result<NonNull<u8>, Error> {
    // SAFETY: a mapping at an address of the kernel's choice touches nothing that exists.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) };
    if start == libc::MAP_FAILED {
        // mmap refuses a locked mapping beyond RLIMIT_MEMLOCK with EAGAIN; mappings are locked after
        // mlockall(MCL_FUTURE). A hardware NIC, which locks by itself, returns ENOMEM then.
        Err(match last_error() {
            Error::Os(libc::EAGAIN) => Error::Os(libc::ENOMEM),
            error => error,
        })
    } else {
        NonNull::new(start.cast()).ok_or(Error::Invalid)
    }
}

fn populate(mapping: Mapping) -> Result<Mapping, Error> {
    const MADV_POPULATE_WRITE: libc::c_int = 23;
    // SAFETY: the pages are mapped, and populating changes no byte.
    let done = unsafe { libc::madvise(mapping.start.as_ptr().cast(), mapping.len, MADV_POPULATE_WRITE) };
    if done == 0 {
        return Ok(mapping);
    }
    match last_error() {
        // Kernels before 5.14, and sandboxes, do not know the advice: touch each page by a write that
        // changes nothing. (fetch_add(0) would be compiled to a load.)
        Error::Os(libc::EINVAL | libc::ENOSYS | libc::EPERM | libc::EACCES | libc::EOPNOTSUPP) => {
            for at in (0..mapping.len).step_by(page()) {
                // SAFETY: within the mapping.
                let byte = unsafe { std::sync::atomic::AtomicU8::from_ptr(mapping.start.add(at).as_ptr()) };
                let _ = byte.compare_exchange(
                    0,
                    0,
                    std::sync::atomic::Ordering::SeqCst,
                    std::sync::atomic::Ordering::SeqCst,
                );
            }
            Ok(mapping)
        }
        error => Err(error),
    }
}

fn page() -> usize {
    // SAFETY: reads a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

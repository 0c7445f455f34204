//! Checks of the program's memory mappings: memory to be registered must be mapped with the rights that the
//! region requires. No page is accessed.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;

/// The rights of a mapping: `PROCMAP_QUERY_VMA_READABLE` and `_WRITABLE`.
pub(crate) const READABLE: u64 = 1;
pub(crate) const WRITABLE: u64 = 2;

/// `PROCMAP_QUERY` of Linux 6.11: `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;

/// `struct procmap_query` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    rights: u64,
    /// Page size, offset, inode and device; name and build id, which are not requested.
    others: [u64; 7],
}

const _: () = assert!(size_of::<Query>() == 104);

/// Returns EFAULT if a page of the range is not mapped, or its mapping lacks one of the `rights`. Without
/// /proc only unmapped pages are found.
pub(crate) fn check(start: *mut c_void, length: usize, rights: u64) -> Result<(), c_int> {
    let first = start as usize & !(page() - 1);
    let end = (start as usize).checked_add(length).ok_or(libc::EFAULT)?;
    // Opened each time, because a forked child has mappings of its own.
    let allowed = match File::open("/proc/self/maps") {
        Ok(maps) => {
            let first = first as u64;
            let end = end as u64;
            by_query(&maps, first, end, rights).unwrap_or_else(|| by_text(maps, first, end, rights))
        }
        Err(_) => has_no_hole(first, end),
    };
    if allowed { Ok(()) } else { Err(libc::EFAULT) }
}

/// The size of a page in bytes.
pub(crate) fn page() -> usize {
    // SAFETY: queries a number of the system.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// A mapping of the process, or the part of it that lies in a range.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub start: u64,
    pub end: u64,
    /// The arguments `prot` of mmap.
    pub protection: c_int,
    /// True if other processes do not see what is written.
    pub is_private: bool,
    /// The offset of `start` in the file.
    pub offset: u64,
    /// The number of the file; 0 if there is none.
    pub inode: u64,
}

/// Returns the mappings of a range of pages, in the order of addresses. EFAULT if a page is not mapped, and
/// EOPNOTSUPP without /proc.
pub(crate) fn of_range(first: u64, end: u64) -> Result<Vec<Mapping>, c_int> {
    let mappings = within(first, end)?;
    let mut address = first;
    for mapping in &mappings {
        if mapping.start != address {
            return Err(libc::EFAULT);
        }
        address = mapping.end;
    }
    if address == end { Ok(mappings) } else { Err(libc::EFAULT) }
}

/// Returns the mappings within a range of pages, which may have holes.
pub(crate) fn within(first: u64, end: u64) -> Result<Vec<Mapping>, c_int> {
    let maps = File::open("/proc/self/maps").map_err(|_| libc::EOPNOTSUPP)?;
    let lines = BufReader::new(maps).split(b'\n').map_while(Result::ok);
    let all = lines.map_while(|line| whole(&line));
    let inside = all.take_while(|mapping| mapping.start < end).filter(|mapping| mapping.end > first);
    Ok(inside.map(|mapping| mapping.cut(first, end)).collect())
}

impl Mapping {
    /// Returns the part that lies in a range.
    fn cut(self, first: u64, end: u64) -> Mapping {
        let start = self.start.max(first);
        Mapping { start, end: self.end.min(end), offset: self.offset + (start - self.start), ..self }
    }
}

/// Parses a line such as `7f00-7f10 rw-p 00000000 00:01 1234 /memfd:x (deleted)`.
fn whole(line: &[u8]) -> Option<Mapping> {
    let mut words = std::str::from_utf8(line.split(|byte| *byte == b'/').next()?).ok()?.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let shown = words.next()?.as_bytes();
    let right = |index: usize, letter, right| if shown.get(index) == Some(&letter) { right } else { 0 };
    let protection =
        right(0, b'r', libc::PROT_READ) | right(1, b'w', libc::PROT_WRITE) | right(2, b'x', libc::PROT_EXEC);
    let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
    let offset = hexadecimal(words.next()?)?;
    let inode = words.nth(1)?.parse().ok()?;
    let [start, end] = [hexadecimal(start)?, hexadecimal(end)?];
    Some(Mapping { start, end, protection, is_private: shown.get(3) == Some(&b'p'), offset, inode })
}

/// Returns whether each page is mapped. Valgrind takes this system call for one that reads the bytes, and
/// reports uninitialised ones, so it is used only without /proc.
fn has_no_hole(first: usize, end: usize) -> bool {
    // SAFETY: with MS_ASYNC, msync walks the mappings, fails at a hole, and changes nothing.
    unsafe { libc::msync(first as *mut c_void, end - first, libc::MS_ASYNC) == 0 }
}

/// Queries each mapping of the range. `None` if the kernel does not support the query.
fn by_query(maps: &File, first: u64, end: u64, rights: u64) -> Option<bool> {
    let mut address = first;
    while address < end {
        let mut query = Query { size: size_of::<Query>() as u64, address, ..Query::default() };
        // SAFETY: the kernel fills the structure, whose size it is told.
        if unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY as _, &mut query) } != 0 {
            let errno = std::io::Error::last_os_error().raw_os_error();
            return if errno == Some(libc::ENOENT) { Some(false) } else { None };
        }
        if query.rights & rights != rights || query.end <= address {
            return Some(false);
        }
        address = query.end;
    }
    Some(true)
}

/// Reads the lines of all mappings, which are sorted by address, up to the end of the range. If a line is
/// not in the documented format, the range is accepted.
fn by_text(maps: File, first: u64, end: u64, rights: u64) -> bool {
    let mut address = first;
    for line in BufReader::new(maps).split(b'\n').map_while(Result::ok) {
        let Some((start, stop, has)) = mapping(&line) else { return true };
        if address >= end || start > address {
            break;
        }
        if stop > address {
            if has & rights != rights {
                return false;
            }
            address = stop;
        }
    }
    address >= end
}

/// Parses the start, end and rights of a line such as `7f00-7f10 rw-p …`.
fn mapping(line: &[u8]) -> Option<(u64, u64, u64)> {
    let mut words = line.split(|byte| *byte == b' ');
    let range = std::str::from_utf8(words.next()?).ok()?;
    let shown = words.next()?;
    let (start, end) = range.split_once('-')?;
    let right = |index: usize, letter, right| if shown.get(index) == Some(&letter) { right } else { 0 };
    let rights = right(0, b'r', READABLE) | right(1, b'w', WRITABLE);
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?, rights))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_asking_agree_on_rights_and_holes() {
        const PAGE: usize = 4096;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, whose second page loses a right and whose fourth is unmapped.
        let start = unsafe {
            let start = libc::mmap(std::ptr::null_mut(), 5 * PAGE, both, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(start.byte_add(PAGE), PAGE, libc::PROT_READ), 0);
            assert_eq!(libc::munmap(start.byte_add(3 * PAGE), PAGE), 0);
            start
        };
        let asked = |page: usize, pages: usize, rights| {
            let (first, end) =
                (start as u64 + (page * PAGE) as u64, start as u64 + ((page + pages) * PAGE) as u64);
            let maps = || File::open("/proc/self/maps").unwrap();
            let text = by_text(maps(), first, end, rights);
            let query = by_query(&maps(), first, end, rights);
            assert!(query.is_none_or(|query| query == text), "{page} {pages} {rights}");
            assert_eq!(check(first as *mut c_void, pages * PAGE, rights).is_ok(), text);
            text
        };
        assert!(asked(0, 1, READABLE | WRITABLE) && asked(0, 3, READABLE));
        assert!(
            !asked(0, 4, READABLE)
                && !asked(2, 3, READABLE)
                && !asked(3, 1, READABLE)
                && asked(4, 1, READABLE)
        );
        let holes =
            |page, pages| !has_no_hole(start as usize + page * PAGE, start as usize + (page + pages) * PAGE);
        assert!(holes(0, 4) && holes(3, 1) && !holes(0, 3) && !holes(4, 1));
        assert!(!asked(1, 1, WRITABLE) && !asked(0, 3, READABLE | WRITABLE) && asked(2, 1, WRITABLE));
        assert_eq!(check(start, 4 * PAGE, READABLE), Err(libc::EFAULT), "a hole");
        assert_eq!(mapping(b"babble"), None);
        // SAFETY: the test's own mapping.
        unsafe { libc::munmap(start, 5 * PAGE) };
    }
}

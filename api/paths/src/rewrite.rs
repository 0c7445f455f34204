//! Conversion of the device's paths into paths of the broker's tree.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU8, Ordering};

use crate::next::{errno, set_errno};
use crate::own;

/// The maximum length of a path in bytes, including the zero at its end.
pub(crate) const PATH_MAX: usize = libc::PATH_MAX as usize;
/// The environment variable with the folder of the tree (`api/broker/src/paths.rs`).
const PATHS: &CStr = c"REMORA_PATHS";

/// The state that tells if the process has ever been inside the tree, through its working folder or an open
/// folder. Only then does every relative path need a closer look.
static INSIDE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const OUTSIDE: u8 = 1;
const ENTERED: u8 = 2;

/// A buffer with a zero-terminated path.
pub(crate) struct Space {
    bytes: [u8; PATH_MAX],
    len: usize,
}

impl Space {
    fn new() -> Space {
        Space { bytes: [0; PATH_MAX], len: 0 }
    }

    /// Appends bytes to the path. Returns `None` if the path would be too long.
    fn push(&mut self, more: &[u8]) -> Option<()> {
        let end = self.len + more.len();
        // The byte after the path remains 0.
        self.bytes.get_mut(self.len..end).filter(|_| end < PATH_MAX)?.copy_from_slice(more);
        self.len = end;
        Some(())
    }

    /// Replaces the first `replaced` bytes. Returns `None` if the path would be too long.
    fn replace_front(&mut self, replaced: usize, front: &[u8]) -> Option<()> {
        let end = (self.len - replaced) + front.len();
        if end >= PATH_MAX {
            return None;
        }
        self.bytes.copy_within(replaced..self.len, front.len());
        self.bytes[..front.len()].copy_from_slice(front);
        self.bytes[end] = 0;
        self.len = end;
        Some(())
    }

    /// Returns the path without the zero at its end.
    pub(crate) fn path(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the path as a C string.
    pub(crate) fn pointer(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }
}

/// Returns the folder of the tree. `None`: the variable is missing, or the process has more rights than its
/// parent.
pub(crate) fn folder<'a>() -> Option<&'a [u8]> {
    // SAFETY: the name is a C string. The returned string is valid until the program changes the variable,
    // and the caller copies or compares it at once.
    let folder = unsafe {
        // A set-user-ID program must not obey the environment of the user that started it.
        if libc::getauxval(libc::AT_SECURE) != 0 {
            return None;
        }
        let folder = libc::getenv(PATHS.as_ptr());
        (!folder.is_null()).then(|| CStr::from_ptr(folder))?
    };
    Some(folder.to_bytes()).filter(|folder| folder.starts_with(b"/") && folder.len() > 1)
}

/// The result of rewriting a path.
pub(crate) struct Found {
    /// The path in the tree, or the kernel's path to which a path of the device leads.
    pub space: Space,
    /// The offset of the counter's name in the path, if the path names a counter.
    counter: Option<usize>,
}

impl Found {
    /// Returns the path of the counter below the port's folder.
    pub(crate) fn counter(&self) -> Option<&[u8]> {
        self.counter.map(|begin| &self.space.path()[begin..])
    }
}

/// Returns true if the path can belong to the device. Most paths do not, so this function uses little stack.
///
/// # Safety
/// `path` is NULL or a C string.
#[inline]
pub(crate) unsafe fn may_be_own(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: a C string has a first byte, and a second one unless the first is its end.
    let (first, second) = unsafe {
        let first = *path as u8;
        (first, if first == 0 { 0 } else { *path.add(1) as u8 })
    };
    let candidate = match first {
        // The beginning of `/sys` or `/dev`, or repeated slashes.
        b'/' => matches!(second, b's' | b'd' | b'/'),
        0 => false,
        _ => {
            matches!(first, b's' | b'c' | b'i' | b'd' | b'v' | b'.')
                || INSIDE.load(Ordering::Relaxed) != OUTSIDE
        }
    };
    // SAFETY: the path is a C string by the caller's promise.
    candidate && looks_own(unsafe { CStr::from_ptr(path) }.to_bytes())
}

#[inline(never)]
fn looks_own(path: &[u8]) -> bool {
    match path {
        [b'/', ..] => own::own(path).is_some(),
        _ => own::may_be_own(path) || has_entered(),
    }
}

/// Rewrites a path that can belong to the device. `dir` is a folder's descriptor or AT_FDCWD. Returns `None`
/// if the path does not belong to the device; the call then goes on unchanged.
///
/// # Safety
/// `path` is a C string.
#[inline(never)]
pub(crate) unsafe fn find(dir: c_int, path: *const c_char) -> Option<Found> {
    // SAFETY: the path is a C string by the caller's promise.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let kept = errno();
    let target = match path {
        [b'/', ..] => own::own(path).and_then(|_| folder()).and_then(|_| look(path)),
        _ => look_from(dir, path),
    };
    set_errno(kept);
    target
}

/// Returns true if the process has been inside the tree. It may have inherited a working folder there.
fn has_entered() -> bool {
    match INSIDE.load(Ordering::Relaxed) {
        UNKNOWN => {
            let kept = errno();
            let mut space = Space::new();
            let inside = folder_of(libc::AT_FDCWD, &mut space)
                .and_then(|()| folder().map(|tree| space.path().starts_with(tree)));
            INSIDE.store(if inside == Some(true) { ENTERED } else { OUTSIDE }, Ordering::Relaxed);
            set_errno(kept);
            inside == Some(true)
        }
        known => known == ENTERED,
    }
}

#[inline(never)]
fn look_from(dir: c_int, path: &[u8]) -> Option<Found> {
    let mut whole = Space::new();
    folder_of(dir, &mut whole)?;
    if whole.path() != b"/" {
        whole.push(b"/")?;
    }
    whole.push(path.strip_prefix(b"./").unwrap_or(path))?;
    let tree = folder()?;
    // A folder of the tree stands for the corresponding folder of the device.
    let is_in_tree = whole.path().strip_prefix(tree).is_some_and(|rest| rest.starts_with(b"/"));
    if is_in_tree {
        whole.replace_front(tree.len(), b"")?;
    }
    lead(&mut whole)
}

#[inline(never)]
fn look(path: &[u8]) -> Option<Found> {
    let mut whole = Space::new();
    whole.push(path)?;
    lead(&mut whole)
}

/// Rewrites an absolute path. Returns `None` if it has nothing to do with the device. A path that leads out
/// of the device's folders becomes the kernel's path, because only the tree has those folders.
fn lead(path: &mut Space) -> Option<Found> {
    let mut left = false;
    while let Some(own) = own::own(path.path()) {
        let Some(outside) = own.outside() else { return in_tree(path.path()) };
        left = true;
        let replaced = path.len - outside.rest.len();
        path.replace_front(replaced, outside.folder)?;
    }
    left.then(|| {
        let mut space = Space::new();
        space.push(path.path())?;
        Some(Found { space, counter: None })
    })?
}

/// Returns the path of an open folder or of the working folder.
fn folder_of(dir: c_int, space: &mut Space) -> Option<()> {
    let mut name = [0u8; 32];
    let link: &[u8] = if dir == libc::AT_FDCWD { b"/proc/self/cwd\0" } else { descriptor(dir, &mut name)? };
    // SAFETY: the link is a C string, and the buffer has one byte more than the given length. The code makes
    // a system call, because this library replaces the C function.
    let got = unsafe {
        let buffer = space.bytes.as_mut_ptr();
        libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, link.as_ptr(), buffer, PATH_MAX - 1)
    };
    space.len = usize::try_from(got).ok()?;
    space.bytes[space.len] = 0;
    Some(())
}

/// Returns the zero-terminated name of a descriptor's link in `/proc`.
fn descriptor(dir: c_int, name: &mut [u8; 32]) -> Option<&[u8]> {
    let mut digits = [0u8; 10];
    let mut left = u32::try_from(dir).ok()?;
    let mut begin = digits.len();
    loop {
        begin -= 1;
        digits[begin] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    let prefix = b"/proc/self/fd/";
    name[..prefix.len()].copy_from_slice(prefix);
    let end = prefix.len() + digits.len() - begin;
    name[prefix.len()..end].copy_from_slice(&digits[begin..]);
    name[end] = 0;
    Some(&name[..=end])
}

#[inline(never)]
fn in_tree(path: &[u8]) -> Option<Found> {
    let mut space = Space::new();
    space.push(folder()?)?;
    space.push(path)?;
    INSIDE.store(ENTERED, Ordering::Relaxed);
    let counter = own::own(path).and_then(|own| Some(space.len - own::counter(&own)?.len()));
    Some(Found { space, counter })
}

/// Removes the tree's folder from a path that the system resolved, so that the program sees the device's
/// path.
///
/// # Safety
/// `path` is NULL, or a C string that may be written to.
pub(crate) unsafe fn out_of_tree(path: *mut c_char) {
    if path.is_null() || INSIDE.load(Ordering::Relaxed) != ENTERED {
        return;
    }
    let Some(tree) = folder() else { return };
    // SAFETY: the path is a C string by the caller's promise.
    let resolved = unsafe { CStr::from_ptr(path) }.to_bytes();
    if resolved.strip_prefix(tree).is_some_and(|rest| rest.starts_with(b"/")) {
        let left = resolved.len() - tree.len();
        // SAFETY: both ranges are inside the string, whose end is copied too.
        unsafe { std::ptr::copy(path.add(tree.len()), path, left + 1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptors_link_has_its_number() {
        let mut name = [0; 32];
        assert_eq!(descriptor(0, &mut name), Some(&b"/proc/self/fd/0\0"[..]));
        assert_eq!(descriptor(i32::MAX, &mut name), Some(&b"/proc/self/fd/2147483647\0"[..]));
        assert_eq!(descriptor(-3, &mut name), None);
    }

    #[test]
    fn a_path_that_leads_out_of_the_devices_folders_and_back_is_followed_to_its_end() {
        let lead = |path: &str| {
            let mut space = Space::new();
            space.push(path.as_bytes()).unwrap();
            super::lead(&mut space).map(|target| String::from_utf8(target.space.path().to_vec()).unwrap())
        };
        let around = "/sys/class/infiniband/../infiniband/remora0/../../infiniband_verbs/uverbs0/../../net/x";
        assert_eq!(lead(around).as_deref(), Some("/sys/devices/virtual/net/x"));
        assert_eq!(lead("/dev/infiniband/..").as_deref(), Some("/dev"));
        assert_eq!(lead("/sys/class/net/lo"), None);
        // This process has no tree.
        assert_eq!(lead("/sys/class/infiniband/remora0"), None);
    }

    #[test]
    fn a_path_that_would_be_too_long_is_left_to_the_system() {
        let mut space = Space::new();
        assert!(space.push(&[b'x'; PATH_MAX - 1]).is_some());
        assert!(space.push(b"x").is_none());
        assert_eq!((space.path().len(), space.bytes[PATH_MAX - 1]), (PATH_MAX - 1, 0));
    }
}

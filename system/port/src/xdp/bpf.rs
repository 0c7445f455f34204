//! The calls of bpf(2) that a port needs: a map of sockets, the program, and the link that attaches the
//! program to an interface.
//!
//! The link makes attaching safe: it is a descriptor, so the program is detached from the interface however
//! this process ends. Nothing is pinned, so nothing outlives the process.

use super::program::Instruction;
use rustix::io::Errno;
use std::ffi::c_long;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Commands of bpf(2).
#[derive(Copy, Clone)]
#[repr(u32)]
enum Command {
    MapCreate = 0,
    MapUpdate = 2,
    ProgramLoad = 5,
    #[cfg(test)]
    ProgramTestRun = 10,
    LinkCreate = 28,
}

const MAP_OF_SOCKETS: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// Flag: the program supports frames in several buffers (Linux 5.18). It examines only the first buffer.
const HAS_FRAGMENTS: u32 = 1 << 5;

/// The place where an interface runs the program.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// In the kernel's common receive path, after the driver: for drivers without XDP support.
    Generic,
}

impl Mode {
    fn flag(self) -> u32 {
        match self {
            Mode::Native => 1 << 2,
            Mode::Generic => 1 << 1,
        }
    }
}

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_len: u32,
    value_len: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    numa_node: u32,
    name: [u8; 16],
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_len: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

/// Name of the map and the program as shown by `bpftool`.
const NAME: [u8; 16] = *b"remora\0\0\0\0\0\0\0\0\0\0";

/// Calls bpf(2).
///
/// # Safety
/// `attributes` are those of `command`, and their pointers may be accessed as that command does.
unsafe fn bpf<T>(command: Command, attributes: &mut T) -> Result<c_long, Errno> {
    // SAFETY: the caller's promise; the kernel accesses at most the number of bytes that it is passed.
    let status = unsafe {
        libc::syscall(libc::SYS_bpf, command as c_long, std::ptr::from_mut(attributes), size_of::<T>())
    };
    if status < 0 { Err(super::last_errno()) } else { Ok(status) }
}

/// Calls bpf(2) with a command whose result is a descriptor.
///
/// # Safety
/// The conditions of [`bpf`].
unsafe fn descriptor<T>(command: Command, attributes: &mut T) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller's promise.
    let descriptor = unsafe { bpf(command, attributes) }?;
    // SAFETY: the kernel has just created this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// Creates a map from receive queues to AF_XDP sockets, with an entry for each queue below `queues`.
pub(super) fn map_of_sockets(queues: u32) -> Result<OwnedFd, Errno> {
    let mut attributes = MapCreate {
        kind: MAP_OF_SOCKETS,
        key_len: 4,
        value_len: 4,
        entries: queues,
        flags: 0,
        inner: 0,
        numa_node: 0,
        name: NAME,
    };
    // SAFETY: the attributes contain no pointers.
    unsafe { descriptor(Command::MapCreate, &mut attributes) }
}

/// Sets the socket of `queue` in the map.
pub(super) fn put_socket(map: &OwnedFd, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let value = socket.as_raw_fd();
    let mut attributes = MapUpdate {
        map: map.as_raw_fd() as u32,
        pad: 0,
        key: std::ptr::from_ref(&queue) as u64,
        value: std::ptr::from_ref(&value) as u64,
        flags: 0,
    };
    // SAFETY: key and value have the four bytes each that the map was created for, and live through the
    // call.
    unsafe { bpf(Command::MapUpdate, &mut attributes) }.map(|_| ())
}

/// Loads an XDP program into the kernel, which verifies it. It does not run yet.
pub(super) fn load(code: &[Instruction]) -> Result<OwnedFd, Errno> {
    let mut attributes = ProgramLoad {
        kind: PROGRAM_XDP,
        count: code.len() as u32,
        instructions: code.as_ptr() as u64,
        license: c"Apache-2.0 OR MIT".as_ptr() as u64,
        log_level: 0,
        log_len: 0,
        log: 0,
        kernel_version: 0,
        flags: HAS_FRAGMENTS,
        name: NAME,
        interface: 0,
        attach: ATTACH_XDP,
    };
    // SAFETY: `instructions` are `count` instructions and the license a string, both alive through the call.
    let loaded = unsafe { descriptor(Command::ProgramLoad, &mut attributes) };
    if loaded.as_ref().err() != Some(&Errno::INVAL) {
        return loaded;
    }
    attributes.flags = 0;
    // SAFETY: as above.
    unsafe { descriptor(Command::ProgramLoad, &mut attributes) }
}

/// Attaches a program to an interface as long as the returned descriptor lives. Fails with `BUSY` or
/// `EXIST` if another program is attached, which then stays.
pub(super) fn attach(program: &OwnedFd, interface: u32, mode: Mode) -> Result<OwnedFd, Errno> {
    let mut attributes =
        LinkCreate { program: program.as_raw_fd() as u32, interface, attach: ATTACH_XDP, flags: mode.flag() };
    // SAFETY: the attributes contain no pointers.
    unsafe { descriptor(Command::LinkCreate, &mut attributes) }
}

/// Runs a program on one frame in the kernel, without any interface, and returns its verdict.
#[cfg(test)]
pub(super) fn run(program: &OwnedFd, frame: &[u8]) -> Result<i32, Errno> {
    #[repr(C)]
    #[derive(Default)]
    struct TestRun {
        program: u32,
        result: u32,
        frame_len: u32,
        out_len: u32,
        frame: u64,
        out: u64,
        repeat: u32,
        duration: u32,
    }
    let mut attributes = TestRun {
        program: program.as_raw_fd() as u32,
        frame_len: frame.len() as u32,
        frame: frame.as_ptr() as u64,
        ..TestRun::default()
    };
    // SAFETY: `frame` has `frame_len` bytes and lives through the call; the kernel writes only to the
    // attributes.
    unsafe { bpf(Command::ProgramTestRun, &mut attributes) }?;
    Ok(attributes.result as i32)
}

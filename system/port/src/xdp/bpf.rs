//! The calls of bpf(2) that a port needs: a map of sockets, the program, and the link that holds it on an
//! interface.
//!
//! The link makes attaching safe: it is a descriptor, so any end of this process takes the program off the
//! interface. Nothing is pinned and nothing outlives us.

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
/// The program bears frames in several buffers: it looks at the first only (Linux 5.18).
const HAS_FRAGMENTS: u32 = 1 << 5;

/// Where an interface runs its program.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// In the kernel's common receive path, after the driver: for drivers that know nothing of XDP.
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

/// Shown by `bpftool` beside the map and the program.
const NAME: [u8; 16] = *b"remora\0\0\0\0\0\0\0\0\0\0";

/// Calls bpf(2).
///
/// # Safety
/// `attributes` are those of `command`, and their pointers may be read as that command does.
unsafe fn bpf<T>(command: Command, attributes: &mut T) -> Result<c_long, Errno> {
    // SAFETY: the caller's promise; the kernel reads and writes at most as many bytes as it is passed.
    let status = unsafe {
        libc::syscall(libc::SYS_bpf, command as c_long, std::ptr::from_mut(attributes), size_of::<T>())
    };
    if status < 0 { Err(super::last_errno()) } else { Ok(status) }
}

/// The same for commands whose result is a descriptor.
///
/// # Safety
/// As for [`bpf`].
unsafe fn descriptor<T>(command: Command, attributes: &mut T) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller's promise.
    let descriptor = unsafe { bpf(command, attributes) }?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// A map from receive queues to AF_XDP sockets, with an entry for each queue below `queues`.
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
    // SAFETY: the attributes point nowhere.
    unsafe { descriptor(Command::MapCreate, &mut attributes) }
}

/// Makes the map lead from `queue` to this socket.
pub(super) fn put_socket(map: &OwnedFd, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let value = socket.as_raw_fd();
    let mut attributes = MapUpdate {
        map: map.as_raw_fd() as u32,
        pad: 0,
        key: std::ptr::from_ref(&queue) as u64,
        value: std::ptr::from_ref(&value) as u64,
        flags: 0,
    };
    // SAFETY: key and value are the four bytes each that the map was made for, and live through the call.
    unsafe { bpf(Command::MapUpdate, &mut attributes) }.map(|_| ())
}

/// Gives the kernel a program for frames; it is checked there, and runs nowhere yet.
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

/// Attaches a program to an interface for as long as the descriptor lives.
///
/// `BUSY` or `EXIST`: another program is there, which stays.
pub(super) fn attach(program: &OwnedFd, interface: u32, mode: Mode) -> Result<OwnedFd, Errno> {
    let mut attributes =
        LinkCreate { program: program.as_raw_fd() as u32, interface, attach: ATTACH_XDP, flags: mode.flag() };
    // SAFETY: the attributes point nowhere.
    unsafe { descriptor(Command::LinkCreate, &mut attributes) }
}

/// Runs a program on one frame in the kernel, without any interface, and returns what it would do with it.
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
    // SAFETY: `frame` is `frame_len` bytes and lives through the call; the kernel writes back to nothing but
    // the attributes.
    unsafe { bpf(Command::ProgramTestRun, &mut attributes) }?;
    Ok(attributes.result as i32)
}

//! A kernel that refuses the filter by which datagrams are steered: an older kernel, or one in a sandbox.

use std::io;
use std::mem::offset_of;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
/// The offset of the lower half of setsockopt's third argument, the option, in the data of a filter.
const OPTION: usize = offset_of!(libc::seccomp_data, args) + 2 * size_of::<u64>();

/// Returns an instruction. A comparison that fails skips `no` instructions.
const fn step(code: u32, k: u32, no: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: no, k }
}

/// Makes `SO_ATTACH_REUSEPORT_CBPF` fail by ENOPROTOOPT in the command's process and its children.
pub(crate) fn refuses_steering(command: &mut Command) {
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let program = [
        step(LOAD_WORD, offset_of!(libc::seccomp_data, nr) as u32, 0),
        step(equals, libc::SYS_setsockopt as u32, 3),
        step(LOAD_WORD, OPTION as u32, 0),
        step(equals, libc::SO_ATTACH_REUSEPORT_CBPF as u32, 1),
        step(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOPROTOOPT as u32, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let install = move || {
        // The kernel only reads the instructions.
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
        // SAFETY: system calls. `filter` points to as many instructions as it states, which live through the
        // calls.
        let status = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
        };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec, the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(install) };
}

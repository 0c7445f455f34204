//! QPN ranges: the upper seven bits of the destination QP number, by which the kernel steers datagrams to
//! the sockets of one address.
//!
//! The filter is a classic BPF program, which every user may attach to a group of sockets (`SO_REUSEPORT`,
//! socket(7)). It sees the bytes after the UDP header, which begin with the BTH.

use remora_wire::rma;
use rustix::io::Errno;
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd};

/// Number of QPN ranges of an address: the destination QP number has 24 bits, and each range spans the
/// lower 17 of them.
pub const RANGES: usize = 128;
/// Offset in the BTH of the byte with the upper eight bits of the destination QP number (IBTA vol. 1 §9.2).
const DEST_QP: usize = 5;

/// Returns the QPN range that a datagram is for. Messages of 1RMA have no QP number and belong to range 0,
/// as do datagrams that are too short for one.
#[inline(always)]
pub fn range_of(datagram: &[u8]) -> u8 {
    match (datagram.first(), datagram.get(DEST_QP)) {
        (Some(first), Some(upper)) if !rma::begins(*first) => upper >> 1,
        _ => 0,
    }
}

/// The classic BPF program that computes [`range_of`]. The kernel uses the result as the index of a socket,
/// in the order in which the sockets were bound. If the program reads beyond the end of a datagram, the
/// kernel ends it with the result 0.
#[derive(Copy, Clone, Debug)]
pub struct Steering {
    program: [libc::sock_filter; 7],
}

/// Returns an instruction that does not jump.
const fn step(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;

impl Steering {
    /// Creates the program.
    pub const fn new() -> Steering {
        let is_rma = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        Steering {
            program: [
                step(LOAD_BYTE, 0),
                step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0xf8),
                libc::sock_filter { code: is_rma, jt: 0, jf: 1, k: 0xe0 },
                step(libc::BPF_RET | libc::BPF_K, 0),
                step(LOAD_BYTE, DEST_QP as u32),
                step(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 1),
                step(libc::BPF_RET | libc::BPF_A, 0),
            ],
        }
    }

    /// Attaches the program to the group of sockets that this one belongs to.
    ///
    /// # Errors
    /// The errno of setsockopt(2): the kernel cannot steer groups, or not by such a program.
    pub fn attach(&self, socket: &impl AsFd) -> Result<(), Errno> {
        attach(socket, libc::SO_ATTACH_REUSEPORT_CBPF, &self.program)
    }
}

impl Default for Steering {
    fn default() -> Steering {
        Steering::new()
    }
}

/// Makes the kernel drop everything that arrives on a socket that only sends.
pub(super) fn refuse_all(socket: &impl AsFd) -> Result<(), Errno> {
    attach(socket, libc::SO_ATTACH_FILTER, &[step(libc::BPF_RET | libc::BPF_K, 0)])
}

fn attach(socket: &impl AsFd, option: libc::c_int, program: &[libc::sock_filter]) -> Result<(), Errno> {
    // The kernel only reads the instructions.
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    let len = size_of_val(&filter) as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    let optval = (&raw const filter).cast();
    // SAFETY: `filter` has `len` bytes and points to as many instructions as it says; all live through the
    // call, which copies them.
    let status = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, optval, len) };
    let failed = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
    if status == 0 { Ok(()) } else { Err(failed()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets the program by the kernel's rules: a load beyond the end ends it with 0.
    fn run(steering: &Steering, datagram: &[u8]) -> u32 {
        let mut position = 0;
        let mut a = 0u32;
        loop {
            let step = steering.program[position];
            position += 1;
            match u32::from(step.code) {
                LOAD_BYTE => match datagram.get(step.k as usize) {
                    Some(byte) => a = u32::from(*byte),
                    None => return 0,
                },
                code if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => a &= step.k,
                code if code == libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K => a >>= step.k,
                code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => {
                    position += usize::from(if a == step.k { step.jt } else { step.jf });
                }
                code if code == libc::BPF_RET | libc::BPF_K => return step.k,
                code if code == libc::BPF_RET | libc::BPF_A => return a,
                other => panic!("an instruction that this program has not: {other:#x}"),
            }
        }
    }

    #[test]
    fn the_program_and_the_function_steer_every_first_byte_and_range_alike() {
        let steering = Steering::new();
        for first in 0..=255u8 {
            for upper in 0..=255u8 {
                let datagram = [first, 1, 2, 3, 4, upper, 6, 7];
                let range = range_of(&datagram);
                assert_eq!(u32::from(range), run(&steering, &datagram), "{first:#x} {upper:#x}");
                assert!(usize::from(range) < RANGES);
                assert_eq!(range, if (0xe0..=0xe7).contains(&first) { 0 } else { upper >> 1 });
            }
        }
        for len in 0..=DEST_QP {
            assert_eq!((range_of(&[0x0a; 5][..len]), run(&steering, &[0x0a; 5][..len])), (0, 0));
        }
    }
}

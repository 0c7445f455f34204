//! The CPU's prediction of return addresses after a system call.
//!
//! With the mitigations of Retbleed and SRSO on AMD processors, each function of the kernel leaves an entry
//! on the CPU's return address stack. After a system call, all entries of the program are gone, and its next
//! `ret` is predicted to lead into the kernel. On Zen 3 that `ret` takes 110 ns after an empty `recvfrom` and
//! 550 ns after a `sendto`; the ones behind it take 5 ns each. If the stack is filled with addresses of the
//! program, no `ret` takes more than 10 ns, and filling takes 15 ns.

use std::sync::OnceLock;

/// The kernel's reports on its mitigations, and the words that name the ones in question.
const MITIGATIONS: [(&str, &str); 2] = [
    ("/sys/devices/system/cpu/vulnerabilities/spec_rstack_overflow", "Safe RET"),
    ("/sys/devices/system/cpu/vulnerabilities/retbleed", "untrained return thunk"),
];

/// Knowledge of whether system calls overwrite the return address stack.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ReturnStack {
    overwritten: bool,
}

impl ReturnStack {
    /// Returns the knowledge about this machine, from the reports of the kernel. Without a report, no
    /// mitigation is assumed.
    pub(crate) fn of_this_machine() -> ReturnStack {
        static OVERWRITTEN: OnceLock<bool> = OnceLock::new();
        let overwritten = *OVERWRITTEN.get_or_init(|| !has_shadow_stack() && is_mitigated());
        ReturnStack { overwritten }
    }

    /// Fills the return address stack after a system call, if the kernel has overwritten it. Must be inlined
    /// into the function that makes the call, before that function returns.
    #[inline(always)]
    pub(crate) fn refill(self) {
        if self.overwritten {
            fill();
        }
    }
}

/// Returns true if the kernel reports one of the mitigations.
fn is_mitigated() -> bool {
    let reports = MITIGATIONS.iter();
    let mut matches = reports.filter(|(path, words)| {
        let report = std::fs::read_to_string(path);
        report.is_ok_and(|report| report.contains(words))
    });
    matches.next().is_some()
}

/// Returns true if the CPU compares each return with a second stack that it keeps itself. Calls without
/// returns would make the two stacks differ.
#[cfg(target_arch = "x86_64")]
fn has_shadow_stack() -> bool {
    let pointer: u64;
    // SAFETY: the instruction does nothing without a shadow stack, and otherwise reads its pointer.
    unsafe {
        std::arch::asm!("xor {0:e}, {0:e}", "rdsspq {0}", out(reg) pointer, options(nomem, nostack));
    }
    pointer != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_shadow_stack() -> bool {
    false
}

/// Puts 16 addresses on the return address stack, more than the calls between a program's loop and a port's
/// system call. Code at these addresses runs speculatively at most, and is a trap.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn fill() {
    // SAFETY: the calls write 16 words below the stack pointer, which is restored. The compiler keeps nothing
    // there, because the options do not promise that the stack is untouched.
    unsafe {
        std::arch::asm!(".rept 16", "call 2f", "int3", "2:", ".endr", "add rsp, 128");
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn fill() {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `depth` by as many returns, the first of which is predicted wrongly.
    #[inline(never)]
    fn deep(depth: u64) -> u64 {
        if depth == 0 {
            ReturnStack { overwritten: true }.refill();
            return 0;
        }
        std::hint::black_box(deep(depth - 1)) + 1
    }

    #[test]
    fn functions_return_to_their_callers_after_a_refill() {
        for depth in [0, 1, 15, 16, 17, 40] {
            assert_eq!(deep(depth), depth);
        }
    }
}

//! Advice for errors of the system.

use rustix::io::Errno;
use std::io;

/// Returns the limit or the cause behind an error of the system, in parentheses and after a space. It is
/// empty for an errno whose own text says everything.
#[must_use]
pub fn remedy(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => " (descriptors are limited by `ulimit -n`: raise it for this process)",
        Some(Errno::NFILE) => " (open files of all processes are limited by `sysctl fs.file-max`: raise it)",
        Some(Errno::NOMEM) => {
            " (memory is limited by the container, by `ulimit -v`, and by `sysctl vm.max_map_count`: raise it)"
        }
        Some(Errno::AGAIN) => " (threads are limited by `ulimit -u` and by the container: raise it)",
        Some(Errno::FBIG) => " (files and shared memory are limited by `ulimit -f`: raise it)",
        Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS) => {
            " (a sandbox (seccomp) forbids the call, or the kernel lacks it: `remora doctor` names all such calls)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_errno_is_answered_with_the_limit_that_causes_it() {
        let words = |errno: Errno| remedy(&errno.into());
        assert!(words(Errno::MFILE).contains("`ulimit -n`"));
        assert!(words(Errno::NFILE).contains("fs.file-max") && !words(Errno::NFILE).contains("ulimit"));
        assert!(words(Errno::NOMEM).contains("`ulimit -v`") && !words(Errno::NOMEM).contains("ulimit -n"));
        assert!(words(Errno::AGAIN).contains("`ulimit -u`"));
        assert_eq!(words(Errno::NODEV), "");
        assert_eq!(remedy(&io::ErrorKind::UnexpectedEof.into()), "");
    }
}

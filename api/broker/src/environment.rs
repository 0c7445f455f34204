//! Environment variables: the only place where the libraries read them.
//!
//! A program with more rights than the user that starts it (set-user-ID, set-group-ID, file capabilities)
//! must not obey that user's variables: they would choose a program that runs with its rights, or a file
//! that it writes. The kernel marks such a program by AT_SECURE, and in it every variable counts as unset.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Returns whether the program must ignore its environment.
pub fn is_privileged() -> bool {
    // SAFETY: reads the auxiliary vector, which the kernel wrote when the program started.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Returns the value of a variable; `None` if it is unset or empty, and in a privileged program.
pub fn variable(name: &str) -> Option<OsString> {
    obeyed(is_privileged(), std::env::var_os(name))
}

/// Returns whether a variable is set to a value other than 0. Always false in a privileged program.
pub fn is_set(name: &str) -> bool {
    variable(name).is_some_and(|value| value != OsStr::new("0"))
}

/// Returns the folder for temporary files: the value of the variable `TMPDIR`, or `/tmp`.
pub fn temporary_folder() -> PathBuf {
    variable("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from)
}

fn obeyed(is_privileged: bool, value: Option<OsString>) -> Option<OsString> {
    value.filter(|value| !is_privileged && !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_privileged_program_has_no_variable_and_an_empty_one_counts_as_unset() {
        let value = |text: &str| Some(OsString::from(text));
        assert_eq!(obeyed(false, value("x")), value("x"));
        assert_eq!(obeyed(false, value("")), None);
        assert_eq!(obeyed(true, value("x")), None);
        assert!(!is_privileged(), "a test has the rights of its user");
    }
}

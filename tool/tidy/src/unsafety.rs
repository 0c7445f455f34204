//! The rule that `unsafe` occurs only in the crates that may have it.
//!
//! Clippy's `undocumented_unsafe_blocks` requires a reason for each block. The places are checked here,
//! because a crate could relax a lint for itself.

use crate::Fault;
use crate::layers;
use crate::tokens::{Scope, is_ident, line, walk};
use crate::tree::File;

/// Reports `unsafe` outside the crates that may have it, also in tests and build scripts.
pub fn check(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if layers::find(file.member()).is_some_and(|layer| layer.may_be_unsafe) {
            continue;
        }
        let walked = walk(file, Scope::All, &mut |tokens| {
            for token in tokens.iter().filter(|token| is_ident(Some(token), "unsafe")) {
                let says = format!("`unsafe` stands only in {}", layers::unsafe_crates().join(", "));
                faults.push(Fault::new(&file.path, line(token), says));
            }
        });
        faults.extend(walked.err());
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_in_nic_is_a_fault_with_its_line_even_in_a_test_or_a_macro() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests { macro_rules! m { () => { unsafe { a() } } } }\n";
        let faults = check(&[File::sample("nic/src/a.rs", text)]);
        assert!(faults.len() == 1 && faults[0].line == 3, "{faults:?}");
    }

    #[test]
    fn unsafe_in_memory_is_not() {
        assert_eq!(check(&[File::sample("memory/src/a.rs", "unsafe fn a() {}")]), []);
    }
}

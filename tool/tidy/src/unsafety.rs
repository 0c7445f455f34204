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
                let says = layers::unsafe_sentence();
                faults.push(Fault::new(&file.path, line(token), says));
            }
        });
        faults.extend(walked.err());
    }
    faults
}

/// Crates that may have `unsafe` and have none.
pub fn unused(files: &[File]) -> Vec<Fault> {
    let has_unsafe = |file: &File| {
        let mut is_unsafe = false;
        let _ = walk(file, Scope::All, &mut |tokens| {
            is_unsafe |= tokens.iter().any(|token| is_ident(Some(token), "unsafe"));
        });
        is_unsafe
    };
    let is_unused =
        |name: &&str| !files.iter().any(|file| file.is_rust() && file.member() == *name && has_unsafe(file));
    let unused: Vec<&str> = layers::unsafe_crates().into_iter().filter(is_unused).collect();
    let says = |name: &&str| Fault::new("Cargo.toml", 0, format!("{name} may have `unsafe` and has none"));
    unused.iter().map(says).collect()
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
    fn a_crate_that_is_listed_without_cause_is_a_fault() {
        let code = |name: &str| File::sample(&format!("{name}/src/a.rs"), "unsafe fn a() {}");
        let files: Vec<File> = layers::unsafe_crates().into_iter().map(code).collect();
        assert_eq!(unused(&files), []);
        assert!(unused(&files[1..])[0].says.starts_with(layers::unsafe_crates()[0]));
    }

    #[test]
    fn unsafe_in_memory_is_not() {
        assert_eq!(check(&[File::sample("memory/src/a.rs", "unsafe fn a() {}")]), []);
    }
}

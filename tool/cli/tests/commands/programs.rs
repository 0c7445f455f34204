//! The programs behind `remora`: where each is found, and which commands it holds.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use remora_options::commands::{Program, holder};
use remora_options::tree::Described;

use crate::running::{Ended, finish, program};

/// Starts `remora` in this folder.
fn remora_in(folder: &Path, words: &[&str]) -> Ended {
    finish(Command::new(folder.join("remora")).args(words).stdin(Stdio::null()))
}

/// Copies a program into a folder.
fn put(folder: &Path, name: &str) {
    fs::create_dir_all(folder).expect("a folder");
    fs::copy(program(name), folder.join(name)).expect("a copy");
}

#[test]
fn a_command_whose_program_is_missing_says_how_to_get_it() {
    let folder = tempfile::tempdir().expect("a folder");
    put(folder.path(), "remora");
    remora_in(folder.path(), &["bench", "verbs"]).one_line(
        "`remora bench` needs the program remora-lab, which is not installed: install all programs (`pip install remora-rdma[all]`), or build it with `cargo build --release --package remora-lab-cli`",
    );
    remora_in(folder.path(), &["help", "kv"]).one_line("`remora kv` needs the program remora-store");
    remora_in(folder.path(), &["kv", "exercise"])
        .one_line("`remora kv exercise` needs the program remora-lab");
    let help = remora_in(folder.path(), &["--help"]).good();
    assert!(help.contains("Laboratory:\n  bench") && help.contains("Simulation:\n  sim"), "{help}");
}

#[test]
fn programs_find_each_other_in_libexec_and_through_a_link() {
    let prefix = tempfile::tempdir().expect("a folder");
    let libexec = prefix.path().join("libexec/remora");
    put(&prefix.path().join("bin"), "remora");
    put(&libexec, "remora-sim");
    let help = remora_in(&prefix.path().join("bin"), &["sim", "--help"]).good();
    assert!(help.contains("Usage: remora sim"), "{help}");
    let elsewhere = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(prefix.path().join("bin/remora"), elsewhere.path().join("remora"))
        .expect("a link");
    assert_eq!(remora_in(elsewhere.path(), &["help", "sim"]).good(), help);
    // A program in libexec can start `remora`, too.
    let sim =
        finish(Command::new(libexec.join("remora-sim")).args(["doctor", "--help"]).stdin(Stdio::null()));
    assert!(sim.good().contains("Usage: remora doctor"));
}

#[test]
fn each_program_holds_the_commands_that_it_should() {
    for own in Program::ALL {
        let described = described(own);
        for path in described.paths() {
            let words: Vec<&str> = path.split(' ').collect();
            assert_eq!(holder(&words).map(|(program, _)| program), Some(own), "{path}");
        }
        assert!(described.paths().len() > 1, "{own:?}");
    }
}

/// Returns the commands that a program holds.
pub(crate) fn described(program: Program) -> Described {
    let mut command = Command::new(crate::running::program(program.file()));
    let out = finish(command.arg(remora_options::tree::PRINT).stdin(Stdio::null())).good();
    serde_json::from_str(&out).expect("a tree of commands")
}

//! This binary again, as another process.

use std::process::Command;

/// A command that runs the test `name` of `module` (its `module_path!()`) in a process of its own.
pub(crate) fn test(module: &str, name: &str) -> Command {
    let (_, inner) = module.split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", &format!("{inner}::{name}"), "--nocapture"]);
    command
}

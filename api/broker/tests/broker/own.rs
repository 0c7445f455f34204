//! This binary again, as another process.

use std::process::Command;

/// The one test `name` of `module` (its `module_path!()`), in a process that is not started yet.
pub fn test(module: &str, name: &str) -> Command {
    let (_, inner) = module.split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("{inner}::{name}"), "--nocapture"]);
    command
}

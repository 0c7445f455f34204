//! Starting the program that holds a command.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::commands::{Program, holder};

/// Replaces this process by the program that holds the command, with the same arguments. Returns if that is
/// this program, or if no command has this name.
///
/// # Errors
/// Fails if the program is missing or cannot be started.
pub fn hand_over(own: Program, arguments: &[OsString]) -> Result<()> {
    let words = arguments.get(1..).unwrap_or_default();
    let Some((program, name)) = holder(words).filter(|(program, _)| *program != own) else { return Ok(()) };
    let file = find(program)
        .with_context(|| format!("cannot start {}, which holds `remora {name}`", program.file()))?;
    let Some(file) = file else {
        bail!(
            "`remora {name}` needs the program {}, which is not installed: install all programs (`pip install remora-rdma[all]`), or build it with `cargo build --release --package {}`",
            program.file(),
            program.package()
        );
    };
    let error = Command::new(&file).arg0(name_of(arguments)).args(words).exec();
    Err(error).with_context(|| format!("starting {} for `remora {name}`", file.display()))
}

/// The name under which this program was started.
fn name_of(arguments: &[OsString]) -> &OsStr {
    arguments.first().map_or(OsStr::new("remora"), OsString::as_os_str)
}

/// Returns the executable file of a program: beside this program's own, or where both were installed. `None`
/// if there is no such file.
///
/// # Errors
/// Fails if this program's own file is unknown, or if the process has the rights of another user: the folder
/// of a set-user-ID program may belong to the user who started it.
pub fn find(program: Program) -> Result<Option<PathBuf>> {
    ensure!(
        !is_privileged(std::fs::read("/proc/self/auxv").as_deref().unwrap_or_default()),
        "this process has the rights of another user (set-user-ID) and starts no other program"
    );
    let own = std::env::current_exe().context("finding this program's own file")?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    Ok(candidates(folder, program).into_iter().find(|file| file.is_file()))
}

/// Key of the entry in the auxiliary vector that is 1 in a process with more rights than its user.
const AT_SECURE: u64 = 23;

/// Returns whether the kernel marked the process with this auxiliary vector as one with the rights of another
/// user. Such a process may be unable to read its vector: an empty one counts as marked.
fn is_privileged(vector: &[u8]) -> bool {
    let (words, _) = vector.as_chunks::<8>();
    let mut entries = words.chunks_exact(2).map(|entry| [entry[0], entry[1]].map(u64::from_ne_bytes));
    entries.find(|[key, _]| *key == AT_SECURE).is_none_or(|[_, value]| value != 0)
}

/// Places of a program whose sibling lies in this folder, the first one preferred.
fn candidates(folder: &Path, program: Program) -> [PathBuf; 3] {
    let file = program.file();
    // `bin` and `libexec/remora` of one prefix.
    let [libexec, bin] = [folder.parent(), folder.parent().and_then(Path::parent)]
        .map(|prefix| prefix.unwrap_or(Path::new("/")));
    [folder.join(file), libexec.join("libexec/remora").join(file), bin.join("bin").join(file)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_lies_beside_its_sibling_or_in_the_same_prefix() {
        let path = Path::new;
        let from_bin = candidates(path("/usr/local/bin"), Program::Store);
        assert_eq!(from_bin[0], path("/usr/local/bin/remora-store"));
        assert_eq!(from_bin[1], path("/usr/local/libexec/remora/remora-store"));
        let from_libexec = candidates(path("/usr/local/libexec/remora"), Program::Remora);
        assert_eq!(from_libexec[2], path("/usr/local/bin/remora"));
        assert_eq!(candidates(path("/"), Program::Lab)[0], path("/remora-lab"));
    }

    #[test]
    fn a_process_with_the_rights_of_another_user_starts_no_program() {
        assert!(!is_privileged(&std::fs::read("/proc/self/auxv").unwrap()));
        let vector = |secure: u64| [6, 4096, AT_SECURE, secure, 0, 0].map(u64::to_ne_bytes).concat();
        assert!(!is_privileged(&vector(0)));
        assert!(is_privileged(&vector(1)));
        assert!(is_privileged(&[]));
    }

    #[test]
    fn an_own_command_and_an_unknown_one_are_handed_to_nobody() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        hand_over(Program::Remora, &words(&["remora", "run", "--", "true"])).unwrap();
        hand_over(Program::Lab, &words(&["remora", "no-such-command"])).unwrap();
        hand_over(Program::Store, &[]).unwrap();
    }

    #[test]
    fn a_missing_program_is_named_with_the_command_that_builds_it() {
        let words: Vec<OsString> = ["remora", "bench", "verbs"].iter().map(OsString::from).collect();
        // No program lies beside a test's own file in `deps`.
        let error = format!("{:#}", hand_over(Program::Remora, &words).unwrap_err());
        assert_eq!(
            error,
            "`remora bench` needs the program remora-lab, which is not installed: install all programs (`pip install remora-rdma[all]`), or build it with `cargo build --release --package remora-lab-cli`"
        );
    }
}

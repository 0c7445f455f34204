//! Starting a broker for an address that has none: another process, which outlives this one.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::error::ClientError;
use crate::environment;
use crate::name;

/// The `remora` command that is started as the broker.
pub const COMMAND: &str = "REMORA_COMMAND";
/// The line that a broker writes when programs can reach it.
pub const READY: &str = "ready";
/// Maximum length of the broker's output: [`READY`], or one line of an error.
const LONGEST: usize = 4096;

/// The reaction to an address without a broker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// Start a broker by the `remora` command of the variable [`COMMAND`], beside this program, or in PATH.
    #[default]
    Search,
    /// Start a broker by this `remora` command.
    Command(PathBuf),
    /// Runs the broker as a thread of this program, which then has the address alone.
    Alone,
    /// Returns an error.
    Never,
}

/// Starts a broker and waits until it is ready. Succeeds also if another program was quicker to start one.
pub(super) fn broker(address: SocketAddr, method: &Start, until: Instant) -> Result<(), ClientError> {
    let program = match method {
        Start::Command(path) => path.clone(),
        _ => command(address)?,
    };
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(&program);
    // The address is written with its interface, as on a command line.
    let text = name::ip(address);
    command.args(["broker", "--background", "--address", &text]);
    // A preloaded library is meant for the program and not for the broker.
    command.env_remove("LD_PRELOAD").current_dir("/");
    if environment::is_privileged() {
        command.env_clear();
    }
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    // SAFETY: between fork and exec, `detach` makes system calls only.
    unsafe { command.pre_exec(detach) };
    let started = command.spawn().and_then(|mut child| child.wait());
    // The command holds the writing end of the pipe, too.
    drop(command);
    started.map_err(|error| cannot(&program, &error))?;
    let output = read(reader, until)?;
    let last = output.lines().next_back().unwrap_or_default();
    let running = last.contains("a broker has");
    match last.strip_prefix("error: ").unwrap_or(last) {
        READY => Ok(()),
        // Another broker has bound the name first.
        _ if running => Ok(()),
        "" => Err(ClientError::Start(format!("{} ended and said nothing", program.display()))),
        words => Err(ClientError::Start(words.to_owned())),
    }
}

fn cannot(program: &Path, error: &io::Error) -> ClientError {
    ClientError::Start(format!(
        "this address has no broker, and {} cannot be started ({error}): set {COMMAND} to the path of `remora`, or set REMORA_ALONE=1 \
         for a single program",
        program.display()
    ))
}

/// Places of `remora` relative to the folder of an installed or freshly built library or program.
const PLACES: [&str; 5] =
    ["remora", "../bin/remora", "../../bin/remora", "../../debug/remora", "../../release/remora"];

/// Finds the `remora` command: by the variable, at the places of an installation or a build, or in PATH. A
/// privileged program searches only the places, since variables come from the user that started it.
fn command(address: SocketAddr) -> Result<PathBuf, ClientError> {
    if let Some(named) = environment::variable(COMMAND) {
        return Ok(named.into());
    }
    let own = object().and_then(|own| own.parent().map(Path::to_owned)).unwrap_or_default();
    let program = PLACES.into_iter().map(|place| own.join(place)).find(|path| path.is_file());
    match program {
        Some(program) => Ok(program),
        None if environment::is_privileged() => Err(unfound(&own, address)),
        None => Ok(OsStr::new("remora").into()),
    }
}

/// The error for a privileged program that has no broker, and no `remora` beside its library in `folder`.
fn unfound(folder: &Path, address: SocketAddr) -> ClientError {
    ClientError::Start(format!(
        "this address has no broker, `remora` is not installed with the library in {}, and a set-user-ID program obeys neither \
         {COMMAND} nor PATH: start `remora broker --address {}` before it",
        folder.display(),
        name::ip(address)
    ))
}

/// Returns the file that contains this code: a shared library that a program has loaded, or the program.
fn object() -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is one of a function, and the C library writes one `Dl_info`.
    if unsafe { libc::dladdr(object as *const libc::c_void, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: the struct was zeroed. For a known address its name is a string that lives as long as the
    // object is loaded, to which this code belongs.
    let name = unsafe {
        let name = info.assume_init().dli_fname;
        (!name.is_null()).then(|| CStr::from_ptr(name))?
    };
    // For a library the name is a path; for a program it is the name by which it was called.
    let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
    if path.is_absolute() { Some(path) } else { std::env::current_exe().ok() }
}

/// Runs in the child: begins a session, and forks once more, so that nobody has to wait for the broker.
/// Descriptors of the program are closed by exec.
fn detach() -> io::Result<()> {
    // SAFETY: system calls that access no memory. A plain clone is a fork without the C library's handlers,
    // which must not run in the child of a program with threads.
    unsafe {
        if libc::setsid() < 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) {
            0 => {}
            -1 => return Err(io::Error::last_os_error()),
            _ => libc::_exit(0),
        }
        // Before Linux 5.11 this call fails, and the descriptors are inherited.
        let close_on_exec = libc::CLOSE_RANGE_CLOEXEC;
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, close_on_exec);
    }
    Ok(())
}

/// Reads the broker's output up to [`READY`], or to its end.
fn read(reader: io::PipeReader, until: Instant) -> Result<String, ClientError> {
    let mut output = Vec::new();
    let mut piece = [0; 512];
    let mut reader = File::from(std::os::fd::OwnedFd::from(reader));
    while output.len() < LONGEST && !output.ends_with(format!("{READY}\n").as_bytes()) {
        let left = until.saturating_duration_since(Instant::now());
        if !remora_host::wait_readable(reader.as_fd(), Some(left))? {
            return Err(ClientError::Start("the broker that was started is not ready in time".to_owned()));
        }
        match reader.read(&mut piece)? {
            0 => break,
            got => output.extend_from_slice(&piece[..got]),
        }
    }
    Ok(String::from_utf8_lossy(&output).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_this_code_is_the_test_and_no_other() {
        let own = std::fs::canonicalize(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(std::fs::canonicalize(object().unwrap()).unwrap(), own);
    }
}

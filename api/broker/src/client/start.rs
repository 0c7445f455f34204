//! A broker for an address that has none: another process, which outlives this one.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::{COMMAND, ClientError, Start};
use crate::name;

/// The word that a broker writes when programs can reach it.
pub const READY: &str = "ready";
/// Bytes that it writes at most: that word, or one line of an error.
const LONGEST: usize = 4096;

/// Starts a broker and waits until it is ready. If another one was quicker, that is as good.
pub(super) fn broker(address: SocketAddr, how: &Start, until: Instant) -> Result<(), ClientError> {
    let program = match how {
        Start::Command(path) => path.clone(),
        _ => command(),
    };
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(&program);
    // With its interface, as the command line has it.
    let text = name::ip(address);
    command.args(["broker", "--background", "--address", &text]);
    // A library that the program preloads is for the program.
    command.env_remove("LD_PRELOAD").current_dir("/");
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    // SAFETY: between fork and exec, `detach` makes system calls only.
    unsafe { command.pre_exec(detach) };
    let started = command.spawn().and_then(|mut child| child.wait());
    // It holds the writing end, too.
    drop(command);
    started.map_err(|error| cannot(&program, &error))?;
    let said = read(reader, until)?;
    let last = said.lines().next_back().unwrap_or_default();
    let running = last.contains("a broker has");
    match last.strip_prefix("error: ").unwrap_or(last) {
        READY => Ok(()),
        // Whoever was quicker has bound the name.
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

/// The `remora` command: of the variable, beside this program, or in PATH.
fn command() -> PathBuf {
    if let Some(named) = std::env::var_os(COMMAND).filter(|named| !named.is_empty()) {
        return named.into();
    }
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("remora"));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| OsStr::new("remora").into())
}

/// In the child: a session of its own, and a child that nobody waits for. What else the program has open
/// stays with the program.
fn detach() -> io::Result<()> {
    // SAFETY: system calls on no memory. A plain clone is a fork without the handlers of the C library, which
    // are not for the child of a program with threads.
    unsafe {
        if libc::setsid() < 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) {
            0 => {}
            -1 => return Err(io::Error::last_os_error()),
            _ => libc::_exit(0),
        }
        // Before Linux 5.11 they are inherited.
        let close_on_exec = libc::CLOSE_RANGE_CLOEXEC;
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, close_on_exec);
    }
    Ok(())
}

/// What the broker says until its word, or its end.
fn read(reader: io::PipeReader, until: Instant) -> Result<String, ClientError> {
    let (mut said, mut piece) = (Vec::new(), [0; 512]);
    let mut reader = File::from(std::os::fd::OwnedFd::from(reader));
    while said.len() < LONGEST && !said.ends_with(format!("{READY}\n").as_bytes()) {
        let left = until.saturating_duration_since(Instant::now());
        if !remora_host::wait_readable(reader.as_fd(), Some(left))? {
            return Err(ClientError::Start("the broker that was started is not ready in time".to_owned()));
        }
        match reader.read(&mut piece)? {
            0 => break,
            got => said.extend_from_slice(&piece[..got]),
        }
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}

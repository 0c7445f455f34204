//! `remora capture`: runs a command with everything that its NICs send and receive recorded.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context as _, Result, bail};
use clap::Parser;

use remora_options::device::{CAPTURE, numbered, taken};
use remora_options::ending;
use remora_options::output::Output;

/// Arguments of `remora capture`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora capture -- remora kv get colour\n  remora capture -o demo.pcapng -- remora demo --records 1000 --gets 1000\n  tshark -r remora.pcapng\n\nEach NIC that the command opens has a file: FILE, FILE with 2 before its ending, and so on. They are there when the command has ended;\nif it opened no NIC, FILE stays as it was. A FILE that is a pipe or device gets the packets of the first NIC as they pass. With\n`--capture FILE` a server records its own."
)]
pub struct Args {
    /// File of the first NIC; one that is there already is replaced, once the command has ended.
    #[arg(short, long, value_name = "FILE", default_value = "remora.pcapng")]
    output: PathBuf,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Of the first file, in a folder of its own until the command has ended.
const FIRST: &str = "capture.pcapng";

/// `remora capture`.
pub fn run(args: &Args) -> Result<()> {
    let Some((program, words)) = args.command.split_first() else { bail!("which command?") };
    let output = Output::find(&args.output)?;
    let files = folder(&output)?;
    let first = files.path().join(FIRST);
    if output.is_stream() {
        symlink(std::path::absolute(output.path())?, &first).context("a link to the output")?;
    }
    // Whoever says `remora` means this one, installed or not.
    let program = if program == "remora" { std::env::current_exe()? } else { PathBuf::from(program) };
    let mut command = Command::new(&program);
    let status = ending::pass_on(command.args(words).env(CAPTURE, std::path::absolute(&first)?))
        .with_context(|| format!("running {}", program.display()))?;
    if deliver(files.path(), &output, &args.output)? == 0 {
        bail!("the command opened no NIC ({status}): nothing is recorded");
    }
    eprintln!("recorded in {}", args.output.display());
    if let Some(command) = decode_as(output.path()) {
        eprintln!("to decode it: {command} -r {}", args.output.display());
    }
    if !status.success() {
        drop(files);
        std::process::exit(code(status));
    }
    Ok(())
}

/// Bytes of a file that hold its first two blocks: the section and the interface.
const OPENING: u64 = 4096;

/// The command that the description of a capture's interface names, where RoCE v2 has another UDP port than
/// its own.
fn decode_as(file: &Path) -> Option<String> {
    let mut opening = Vec::new();
    // A pipe or a device has passed its packets on.
    let regular = std::fs::metadata(file).is_ok_and(|about| about.is_file());
    regular.then(|| File::open(file).ok()?.take(OPENING).read_to_end(&mut opening).ok()).flatten()?;
    interface_description(&opening).filter(|command| command.starts_with("tshark "))
}

/// The description (option 3) in the second block of a pcapng file, an interface's.
fn interface_description(file: &[u8]) -> Option<String> {
    let word = |at: usize| file.get(at..at + 4)?.first_chunk().copied().map(u32::from_le_bytes);
    let half = |at: usize| file.get(at..at + 2)?.first_chunk().copied().map(u16::from_le_bytes);
    let interface = word(4)? as usize;
    let end = interface.checked_add(word(interface.checked_add(4)?)? as usize)?;
    // Behind the type, the length, the link type and the length of packets.
    let mut at = interface + 16;
    while at + 4 <= end {
        let (code, len) = (half(at)?, usize::from(half(at + 2)?));
        if code == 3 {
            return String::from_utf8(file.get(at + 4..at + 4 + len)?.to_vec()).ok();
        }
        if code == 0 {
            return None;
        }
        at += 4 + len.next_multiple_of(4);
    }
    None
}

/// As a shell says it.
pub fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// A folder beside the output, from which files can be moved there; a pipe or device needs none.
fn folder(output: &Output) -> Result<tempfile::TempDir> {
    let beside = if output.is_stream() { std::env::temp_dir() } else { output.folder().to_owned() };
    let made = tempfile::Builder::new().prefix(".remora-capture-").tempdir_in(&beside);
    made.with_context(|| format!("making files in {}", beside.display()))
}

/// Moves what was recorded to where it belongs; how many files that are.
fn deliver(files: &Path, output: &Output, name: &Path) -> Result<usize> {
    let mut count = 0;
    for number in 1.. {
        let made = numbered(&files.join(FIRST), number);
        match std::fs::symlink_metadata(&made) {
            // The link to a pipe or device that no NIC took.
            Ok(about) if about.is_symlink() => break,
            Err(_) if number == 1 && taken(&made).exists() => {}
            Err(_) => break,
            Ok(_) if number == 1 => output.take_file(&made)?,
            Ok(_) => Output::find(&numbered(name, number))?.take_file(&made)?,
        }
        count += 1;
    }
    Ok(count)
}

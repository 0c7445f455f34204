//! `remora capture`: runs a command and records all packets of its NICs.

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
    after_help = "Examples:\n  remora capture -- remora kv get colour\n  remora capture -o demo.pcapng -- remora demo --records 1000 --gets 1000\n  tshark -r remora.pcapng\n\nEach NIC that the command opens has its own file: FILE, FILE with a 2 before its extension, and so on. The files are written when the\ncommand ends; if it opened no NIC, FILE is not changed. If FILE is a pipe or device, it receives the packets of the first NIC at once.\nA server records its own NIC with `--capture FILE`."
)]
pub(crate) struct Args {
    /// File for the packets of the first NIC. An existing file is replaced after the command has ended.
    #[arg(short, long, value_name = "FILE", default_value = "remora.pcapng")]
    output: PathBuf,
    /// Command to run, with its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Name of the first NIC's file in the temporary folder, where captures stay until the command has ended.
const FIRST: &str = "capture.pcapng";

/// Runs `remora capture`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let Some((program, words)) = args.command.split_first() else {
        bail!("no command given; usage: remora capture [-o FILE] -- COMMAND [ARGS]")
    };
    let output = Output::find(&args.output)?;
    let files = folder(&output)?;
    let first = files.path().join(FIRST);
    if output.is_stream() {
        symlink(std::path::absolute(output.path())?, &first).context("linking the capture to the output")?;
    }
    // `remora` stands for this executable, installed or not.
    let program = if program == "remora" { std::env::current_exe()? } else { PathBuf::from(program) };
    let mut command = Command::new(&program);
    let status = ending::pass_on(command.args(words).env(CAPTURE, std::path::absolute(&first)?))
        .with_context(|| format!("running {}", program.display()))?;
    if deliver(files.path(), &output, &args.output)? == 0 {
        bail!("nothing recorded: the command opened no NIC ({status})");
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

/// Maximum length of the first two blocks of a pcapng file: the section header and the interface
/// description.
const OPENING: u64 = 4096;

/// Returns the tshark command in the interface description of a capture. Remora writes one if the UDP port
/// of its RoCE v2 packets is not 4791, so that tshark would not decode them.
fn decode_as(file: &Path) -> Option<String> {
    let mut opening = Vec::new();
    // A pipe or a device cannot be read back.
    let regular = std::fs::metadata(file).is_ok_and(|about| about.is_file());
    regular.then(|| File::open(file).ok()?.take(OPENING).read_to_end(&mut opening).ok()).flatten()?;
    interface_description(&opening).filter(|command| command.starts_with("tshark "))
}

/// Returns the if_description option (code 3) in the second block of a pcapng file, which is the interface
/// description.
fn interface_description(file: &[u8]) -> Option<String> {
    let word = |offset: usize| file.get(offset..offset + 4)?.first_chunk().copied().map(u32::from_le_bytes);
    let half = |offset: usize| file.get(offset..offset + 2)?.first_chunk().copied().map(u16::from_le_bytes);
    let interface = word(4)? as usize;
    let end = interface.checked_add(word(interface.checked_add(4)?)? as usize)?;
    // The options follow the block type, the block length, the link type and the snap length.
    let mut offset = interface + 16;
    while offset + 4 <= end {
        let code = half(offset)?;
        let len = usize::from(half(offset + 2)?);
        if code == 3 {
            return String::from_utf8(file.get(offset + 4..offset + 4 + len)?.to_vec()).ok();
        }
        if code == 0 {
            return None;
        }
        offset += 4 + len.next_multiple_of(4);
    }
    None
}

/// Returns the exit status as a shell does: 128 plus the signal number after a signal.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// Creates the temporary folder for captures. It lies beside the output, so that files can be renamed into
/// place. For a pipe or device it lies in the system's temporary folder.
fn folder(output: &Output) -> Result<tempfile::TempDir> {
    let beside = if output.is_stream() { std::env::temp_dir() } else { output.folder().to_owned() };
    let made = tempfile::Builder::new().prefix(".remora-capture-").tempdir_in(&beside);
    made.with_context(|| format!("creating a temporary folder in {}", beside.display()))
}

/// Moves the captures to their final names and returns the number of captures.
fn deliver(files: &Path, output: &Output, name: &Path) -> Result<usize> {
    let mut count = 0;
    for number in 1.. {
        let made = numbered(&files.join(FIRST), number);
        match std::fs::symlink_metadata(&made) {
            // This is the link to a pipe or device; no NIC has written to it.
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

//! The beginning and the end of every program: logs, limits, arguments, errors.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::commands::{Program, complete};
use crate::tree::{Described, PRINT};
use crate::{logs, print, sibling, version};

/// Runs a program: starts the one that holds the command, or parses the arguments and calls `run`. `refusal`
/// returns an error message if arguments do not fit together.
pub fn start<C: CommandFactory + FromArgMatches>(
    own: Program,
    refusal: fn(&ArgMatches) -> Option<String>,
    run: impl FnOnce(C) -> Result<()>,
) -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let ended = match sibling::hand_over(own, &arguments) {
        Err(error) => Err(error),
        Ok(()) if arguments.get(1).is_some_and(|word| word == PRINT) => print_commands::<C>(),
        Ok(()) => {
            logs::begin();
            raise_file_limit();
            survive_file_size_limit();
            run(parse(refusal))
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line with its causes, whatever RUST_BACKTRACE says. Some causes are texts of other
            // processes.
            let text = format!("{error:#}");
            let lines: Vec<String> = text.lines().map(print::shown).collect();
            eprintln!("error: {}", lines.join("\n"));
            ExitCode::FAILURE
        }
    }
}

fn parse<C: CommandFactory + FromArgMatches>(refusal: fn(&ArgMatches) -> Option<String>) -> C {
    let matches = complete(C::command()).long_version(version::text()).get_matches();
    if let Some(words) = refusal(&matches) {
        C::command().error(ErrorKind::ArgumentConflict, words).exit();
    }
    C::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn print_commands<C: CommandFactory>() -> Result<()> {
    print::line(serde_json::to_string(&Described::new(&complete(C::command())))?);
    Ok(())
}

/// Raises the soft limit of open files, 1024 on most systems, to the hard one: each connection is a
/// descriptor or more.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails the old limit stays, and an error names it when it is reached.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Makes a write beyond `ulimit -f` fail with EFBIG, which is reported; SIGXFSZ would end the process
/// silently. A handler does that instead of SIG_IGN, which programs started by this command would inherit.
fn survive_file_size_limit() {
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    // If this fails the signal ends the process, as by default.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, seen);
}

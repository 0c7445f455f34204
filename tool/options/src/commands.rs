//! The commands of `remora`, in groups, and the program that holds each.
//!
//! `remora` itself holds what a verbs program needs. It starts `remora-store`, `remora-sim` and `remora-lab`
//! for the rest ([`sibling`](crate::sibling)), so that every command keeps its name whichever program holds
//! it.

use std::ffi::OsStr;
use std::fmt::Write as _;

use clap::{Arg, Command};

/// A program that holds commands of `remora`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// Commands for verbs programs: `run`, the broker, the daemon, and commands that observe them.
    Remora,
    /// The stores: their servers, their clients, and the demo.
    Store,
    /// The simulated data center.
    Sim,
    /// Benchmarks, the papers' figures, and recorded random operations.
    Lab,
}

impl Program {
    /// All programs that hold commands of `remora`.
    pub const ALL: [Program; 4] = [Program::Remora, Program::Store, Program::Sim, Program::Lab];

    /// Returns the name of the executable file.
    pub fn file(self) -> &'static str {
        match self {
            Program::Remora => "remora",
            Program::Store => "remora-store",
            Program::Sim => "remora-sim",
            Program::Lab => "remora-lab",
        }
    }

    /// Returns the name of the package that builds the program.
    pub fn package(self) -> &'static str {
        match self {
            Program::Remora => "remora-cli",
            Program::Store => "remora-store-cli",
            Program::Sim => "remora-sim-cli",
            Program::Lab => "remora-lab-cli",
        }
    }
}

/// A command, the program that holds it, and the first line of its help.
struct Entry {
    name: &'static str,
    program: Program,
    about: &'static str,
}

const fn entry(name: &'static str, program: Program, about: &'static str) -> Entry {
    Entry { name, program, about }
}

/// The commands as `remora --help` groups them.
const GROUPS: [(&str, &[Entry]); 7] = [
    (
        "NIC and drop-in libraries",
        &[
            entry("run", Program::Remora, "Run an unmodified verbs program on Remora"),
            entry("broker", Program::Remora, "Share one address between the programs of this host"),
            entry("nicd", Program::Remora, "Keep a NIC in a daemon and lend it to programs, as `serve nic`"),
            entry("nic", Program::Remora, "List and end what programs keep on the NIC of a daemon"),
            entry("devinfo", Program::Remora, "Print the attributes of the device"),
            entry("doctor", Program::Remora, "Check what this machine can run, and how to repair the rest"),
        ],
    ),
    (
        "Stores",
        &[
            entry("serve", Program::Store, "Serve a table, a cache, blocks, a transaction shard or a NIC"),
            entry("kv", Program::Store, "Read and write a key-value table"),
            entry("cache", Program::Store, "Read from a cache by RDMA chains, without the server's CPU"),
            entry("block", Program::Store, "Read and write replicated blocks"),
            entry("txn", Program::Store, "Run transactions over the keys of several shards"),
            entry("demo", Program::Store, "Measure one GET in every design, between two processes"),
        ],
    ),
    (
        "Programs on the NIC",
        &[
            entry("chain", Program::Remora, "Assemble, verify, run and trace programs of RDMA chains"),
            entry("rma", Program::Store, "Read and write another host's memory by 1RMA, encrypted"),
        ],
    ),
    ("Simulation", &[entry("sim", Program::Sim, "Simulate a data center with the real NIC at every host")]),
    (
        "Observation",
        &[
            entry("capture", Program::Remora, "Run a command and record what its NICs send and receive"),
            entry("replay", Program::Remora, "Replay the recording of a NIC and print the first difference"),
            entry("top", Program::Remora, "Watch the counters of a running server"),
        ],
    ),
    (
        "Laboratory",
        &[
            entry("bench", Program::Lab, "Measure operations and stores beside the limits of this machine"),
            entry("figures", Program::Lab, "Reproduce the figures of the papers"),
        ],
    ),
    (
        "Shell",
        &[
            entry("completions", Program::Remora, "Print a script that completes the commands in a shell"),
            entry("man", Program::Remora, "Write the manual pages of all commands"),
        ],
    ),
];

/// First line of the help of each `exercise` command.
const EXERCISE: &str = "Run random operations and record them for a consistency checker";

/// Commands that another program holds than the group that they are in.
const NESTED: [(&str, Entry); 5] = [
    ("kv", entry("exercise", Program::Lab, EXERCISE)),
    ("cache", entry("exercise", Program::Lab, EXERCISE)),
    ("block", entry("exercise", Program::Lab, EXERCISE)),
    ("txn", entry("exercise", Program::Lab, EXERCISE)),
    (
        "serve",
        entry("nic", Program::Remora, "Keep a NIC in a daemon and lend it to programs, which may restart"),
    ),
];

/// Hidden commands, by which programs start a further process.
const HIDDEN: [(&str, Program); 3] =
    [("__peer", Program::Lab), ("__replicas", Program::Lab), ("__chains", Program::Store)];

/// ID of the only argument of a command that another program holds.
pub(crate) const ELSEWHERE: &str = "__elsewhere";

/// Returns the program that holds the command with these arguments (without the program's name), and the
/// command's name. `None` if no command has this name.
pub fn holder(arguments: &[impl AsRef<OsStr>]) -> Option<(Program, String)> {
    let words =
        arguments.iter().map_while(|word| word.as_ref().to_str().filter(|word| !word.starts_with('-')));
    let mut words = words.filter(|word| *word != "help");
    let first = words.next()?;
    if let Some(second) = words.next()
        && let Some((_, entry)) = NESTED.iter().find(|(group, entry)| *group == first && entry.name == second)
    {
        return Some((entry.program, format!("{first} {second}")));
    }
    let named = entries().find(|entry| entry.name == first).map(|entry| entry.program);
    let hidden = HIDDEN.iter().find(|(name, _)| *name == first).map(|(_, program)| *program);
    named.or(hidden).map(|program| (program, first.to_owned()))
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    GROUPS.iter().flat_map(|(_, entries)| *entries)
}

/// Adds the commands of all other programs to a program's own, and gives each its first line of help. The
/// added ones can be listed and suggested, but not run.
pub fn complete(mut command: Command) -> Command {
    for entry in entries() {
        command = with(command, entry);
    }
    for (group, entry) in &NESTED {
        if command.find_subcommand(group).is_some_and(|group| !is_elsewhere(group)) {
            command = command.mut_subcommand(group, |group| with(group, entry));
        }
    }
    command.bin_name("remora").help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}{{after-help}}",
        listing()
    ))
}

fn with(command: Command, entry: &'static Entry) -> Command {
    if command.find_subcommand(entry.name).is_some() {
        return command.mut_subcommand(entry.name, |own| own.about(entry.about));
    }
    let words = Arg::new(ELSEWHERE).num_args(0..).trailing_var_arg(true).allow_hyphen_values(true).hide(true);
    command.subcommand(Command::new(entry.name).about(entry.about).disable_help_flag(true).arg(words))
}

/// Returns whether another program holds the command.
pub(crate) fn is_elsewhere(command: &Command) -> bool {
    command.get_arguments().any(|argument| argument.get_id() == ELSEWHERE)
}

/// The groups of commands as `remora --help` lists them.
fn listing() -> String {
    let width = entries().map(|entry| entry.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (title, entries) in &GROUPS {
        let _ = writeln!(text, "{title}:");
        for Entry { name, about, .. } in *entries {
            let _ = writeln!(text, "  {name:width$}  {about}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_held_by_one_program_whatever_stands_behind_its_name() {
        let program = |words: &[&str]| holder(words).map(|(program, _)| program);
        assert_eq!(program(&["run", "--", "bench"]), Some(Program::Remora));
        assert_eq!(program(&["bench", "--help"]), Some(Program::Lab));
        assert_eq!(program(&["help", "bench", "kv"]), Some(Program::Lab));
        assert_eq!(program(&["kv", "get", "exercise"]), Some(Program::Store));
        assert_eq!(program(&["kv", "exercise"]), Some(Program::Lab));
        assert_eq!(program(&["kv", "help", "exercise"]), Some(Program::Lab));
        assert_eq!(program(&["serve", "nic"]), Some(Program::Remora));
        assert_eq!(program(&["serve", "kv"]), Some(Program::Store));
        assert_eq!(program(&["sim", "x.toml"]), Some(Program::Sim));
        assert_eq!(program(&["--help", "sim"]), None);
        assert_eq!(program(&["unknown"]), None);
        assert_eq!(program(&[]), None);
    }

    #[test]
    fn each_command_stands_in_one_group() {
        let mut names: Vec<&str> = entries().map(|entry| entry.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        let lines = listing();
        assert!(lines.lines().all(|line| line.len() <= 80), "{lines}");
    }
}

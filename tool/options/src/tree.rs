//! The commands of all programs as one tree, for completions and manual pages. Each program prints its own
//! part as JSON.

use std::process::Command as Process;

use anyhow::{Context as _, Result, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgAction, Command, ValueHint};
use serde::{Deserialize, Serialize};

use crate::commands::{Program, complete, is_elsewhere};
use crate::sibling;

/// The hidden command that prints a program's own commands as JSON.
pub const PRINT: &str = "__commands";

/// A command without its parsers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Described {
    name: String,
    about: Option<String>,
    long_about: Option<String>,
    after_help: Option<String>,
    hidden: bool,
    arguments: Vec<Argument>,
    commands: Vec<Described>,
}

/// An option or a positional argument without its parser.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Argument {
    id: String,
    short: Option<char>,
    long: Option<String>,
    help: Option<String>,
    long_help: Option<String>,
    value_names: Vec<String>,
    takes_values: bool,
    takes_several: bool,
    values: Vec<Value>,
    defaults: Vec<String>,
    required: bool,
    last: bool,
    hidden: bool,
    is_path: bool,
}

/// A possible value of an argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Value {
    name: String,
    help: Option<String>,
}

fn text(text: Option<&clap::builder::StyledStr>) -> Option<String> {
    text.map(ToString::to_string)
}

/// Texts of a command tree live as long as the process, which prints it and ends.
fn leaked(text: String) -> &'static str {
    text.leak()
}

impl Described {
    /// Describes a command, without the commands that other programs hold.
    pub fn new(command: &Command) -> Described {
        let own = command.get_subcommands().filter(|command| !is_elsewhere(command));
        let arguments = command.get_arguments().filter(|argument| !is_built_in(argument));
        Described {
            name: command.get_name().to_owned(),
            about: text(command.get_about()),
            long_about: text(command.get_long_about()),
            after_help: text(command.get_after_help()),
            hidden: command.is_hide_set(),
            arguments: arguments.map(Argument::new).collect(),
            commands: own.map(Described::new).collect(),
        }
    }

    /// Returns the names of the commands, each with those of the groups that it is in.
    pub fn paths(&self) -> Vec<String> {
        let below = |command: &Described| match command.paths() {
            own if own.is_empty() => vec![command.name.clone()],
            own => own.iter().map(|path| format!("{} {path}", command.name)).collect(),
        };
        self.commands.iter().flat_map(below).collect()
    }

    /// Adds the commands of another program.
    fn merge(&mut self, other: Described) {
        for command in other.commands {
            match self.commands.iter_mut().find(|own| own.name == command.name) {
                Some(own) => own.merge(command),
                None => self.commands.push(command),
            }
        }
    }

    /// Returns a command whose arguments accept any text.
    pub fn into_command(self) -> Command {
        let mut command = Command::new(leaked(self.name)).hide(self.hidden);
        command = command.args(self.arguments.into_iter().map(Argument::into_arg));
        command = command.subcommands(self.commands.into_iter().map(Described::into_command));
        if let Some(about) = self.about {
            command = command.about(about);
        }
        if let Some(about) = self.long_about {
            command = command.long_about(about);
        }
        if let Some(help) = self.after_help {
            command = command.after_help(help);
        }
        command
    }
}

fn is_built_in(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Help | ArgAction::Version)
}

impl Argument {
    fn new(argument: &Arg) -> Argument {
        let value =
            |value: PossibleValue| Value { name: value.get_name().to_owned(), help: text(value.get_help()) };
        let values = argument.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
        let defaults = if argument.is_hide_default_value_set() { &[] } else { argument.get_default_values() };
        Argument {
            id: argument.get_id().to_string(),
            short: argument.get_short(),
            long: argument.get_long().map(str::to_owned),
            help: text(argument.get_help()),
            long_help: text(argument.get_long_help()),
            value_names: argument
                .get_value_names()
                .unwrap_or_default()
                .iter()
                .map(ToString::to_string)
                .collect(),
            takes_values: argument.get_action().takes_values(),
            takes_several: matches!(argument.get_action(), ArgAction::Append)
                || argument.get_num_args().is_some_and(|count| count.max_values() > 1),
            values: if argument.get_action().takes_values() {
                values.map(value).collect()
            } else {
                Vec::new()
            },
            defaults: defaults.iter().map(|value| value.to_string_lossy().into_owned()).collect(),
            required: argument.is_required_set(),
            last: argument.is_last_set(),
            hidden: argument.is_hide_set(),
            is_path: matches!(
                argument.get_value_hint(),
                ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath
            ),
        }
    }

    fn into_arg(self) -> Arg {
        let mut arg = Arg::new(leaked(self.id)).required(self.required).last(self.last).hide(self.hidden);
        if let Some(short) = self.short {
            arg = arg.short(short);
        }
        if let Some(long) = self.long {
            arg = arg.long(leaked(long));
        }
        if let Some(help) = self.help {
            arg = arg.help(help);
        }
        if let Some(help) = self.long_help {
            arg = arg.long_help(help);
        }
        if !self.takes_values {
            return arg.action(ArgAction::SetTrue);
        }
        arg = arg.action(if self.takes_several { ArgAction::Append } else { ArgAction::Set });
        if self.takes_several && arg.is_positional() {
            arg = arg.num_args(1..);
        }
        let names: Vec<&'static str> = self.value_names.into_iter().map(leaked).collect();
        if !names.is_empty() {
            arg = arg.value_names(names);
        }
        if !self.defaults.is_empty() && !self.required {
            arg = arg.default_values(self.defaults.into_iter().map(leaked).collect::<Vec<_>>());
        }
        if self.is_path {
            arg = arg.value_hint(ValueHint::AnyPath);
        }
        let values = self.values.into_iter().map(Value::into_possible_value).collect::<Vec<_>>();
        if values.is_empty() { arg } else { arg.value_parser(PossibleValuesParser::new(values)) }
    }
}

impl Value {
    fn into_possible_value(self) -> PossibleValue {
        let value = PossibleValue::new(leaked(self.name));
        match self.help {
            Some(help) => value.help(help),
            None => value,
        }
    }
}

/// Returns the commands of several programs as one tree.
pub fn union(programs: impl IntoIterator<Item = Described>) -> Command {
    let merged = programs.into_iter().reduce(|mut all, program| {
        all.merge(program);
        all
    });
    let command = merged.map_or_else(|| Command::new("remora"), Described::into_command);
    complete(command.version(env!("CARGO_PKG_VERSION")).propagate_version(true))
}

/// Returns the commands of `remora` and of all other programs that are installed, as one tree.
///
/// # Errors
/// Fails if another program does not print its commands.
pub fn all(own: &Command) -> Result<Command> {
    let mut programs = vec![Described::new(own)];
    for program in Program::ALL.into_iter().filter(|program| *program != Program::Remora) {
        let Some(file) = sibling::find(program)? else { continue };
        let about = || format!("asking {} for its commands", file.display());
        let output = Process::new(&file).arg(PRINT).output().with_context(about)?;
        ensure!(output.status.success(), "{} does not print its commands", file.display());
        programs.push(serde_json::from_slice(&output.stdout).with_context(about)?);
    }
    Ok(union(programs))
}

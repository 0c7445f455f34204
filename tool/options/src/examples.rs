//! Checks of a program's help texts, for the tests of each program.

use clap::Command;

/// Returns the calls that the help of a command, and of all commands below it, shows as examples.
pub fn examples(command: &Command) -> Vec<String> {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let calls = text.lines().map(|line| line.trim().trim_start_matches("sudo "));
    let own = calls.filter(|line| line.starts_with("remora ")).map(str::to_owned);
    own.chain(command.get_subcommands().flat_map(examples)).collect()
}

/// Panics if an example of the help cannot be parsed. Returns the number of examples.
pub fn check_examples(command: &Command) -> usize {
    let all = examples(command);
    for example in &all {
        // The rest of the line is for the shell.
        let call = example.split(['<', '>', '&', '|']).next().unwrap_or_default();
        let error = command.clone().try_get_matches_from(call.split_whitespace()).err();
        assert!(error.is_none(), "{example}: {error:?}");
    }
    all.len()
}

/// Returns calls of a command, and of all commands below it, that give a word to each of its arguments in
/// turn.
fn calls(command: &Command, path: &[String], word: &str) -> Vec<Vec<String>> {
    let path = [path, &[command.get_name().to_owned()]].concat();
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let taking = arguments.filter(|argument| argument.get_action().takes_values());
    let own = taking.map(|argument| {
        let option = argument.get_long().map(|long| format!("--{long}"));
        path.iter().cloned().chain(option).chain([word.to_owned()]).collect()
    });
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    own.chain(shown.flat_map(|command| calls(command, &path, word))).collect()
}

/// Panics if an option refuses a word by a message of Rust's parsers, such as "invalid digit". Returns the
/// number of options that asked for a whole number instead.
pub fn check_numbers(command: &Command) -> usize {
    let refusal = |call: &Vec<String>| command.clone().try_get_matches_from(call).err();
    let texts: Vec<String> = calls(command, &[], "minusone")
        .iter()
        .filter_map(|call| refusal(call).map(|error| format!("{call:?}: {error}")))
        .collect();
    for text in &texts {
        let rust = ["invalid digit", "invalid float", " is not in "].iter().any(|words| text.contains(words));
        assert!(!rust, "{text}");
    }
    texts.iter().filter(|text| text.contains("give a whole number")).count()
}

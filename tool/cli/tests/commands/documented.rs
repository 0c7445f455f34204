//! Checks that every call of `remora` in the documents uses existing commands, options and values.

use std::path::Path;

use clap::Command;
use remora_options::commands::Program;
use remora_options::tree::union;

use crate::programs::described;

/// Returns the commands of all programs as one tree.
fn all() -> Command {
    union(Program::ALL.map(described))
}

/// Returns the calls of `remora` in code blocks and in backticks.
fn calls(text: &str) -> Vec<&str> {
    let mut fenced = false;
    let mut calls = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            calls.push(line.trim().trim_start_matches("sudo "));
        } else {
            calls.extend(line.split('`').skip(1).step_by(2));
        }
    }
    calls.retain(|call| call.starts_with("remora "));
    calls
}

/// Returns the first word of a call that no program knows.
fn unknown(all: &Command, call: &str) -> Option<String> {
    let mut command = all.clone();
    let own = call.split(['#', '>', '<', '&']).next().unwrap_or_default();
    let mut is_value = false;
    for word in own.split_whitespace().skip(1) {
        if std::mem::take(&mut is_value) && !word.starts_with('-') {
            continue;
        }
        // The words after `--` belong to another program.
        if word == "--" {
            break;
        }
        if let Some(option) = word.strip_prefix("--") {
            let name = option.split('=').next().unwrap_or_default();
            let known = command.get_arguments().find(|argument| argument.get_long() == Some(name));
            if !["help", "version"].contains(&name) && known.is_none() {
                return Some(word.to_owned());
            }
            is_value = name == option && known.is_some_and(|argument| argument.get_action().takes_values());
            continue;
        }
        // Of alternatives such as `kv|block`, only the first is checked. Words in capitals are placeholders.
        let word = word.split('|').next().unwrap_or_default();
        let is_name = !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        match command.find_subcommand(word).cloned() {
            Some(below) => command = below,
            None if is_name && !takes(&command, word) => return Some(word.to_owned()),
            None => {}
        }
    }
    None
}

/// Returns whether a command without subcommands accepts this word.
fn takes(command: &Command, word: &str) -> bool {
    let mut places = command.get_positionals().peekable();
    let values = places.peek().map(|first| first.get_possible_values()).unwrap_or_default();
    let of_options = command.get_opts().next().is_some();
    match (places.peek().is_some(), values.is_empty()) {
        (true, false) => of_options || values.iter().any(|value| value.matches(word, false)),
        (true, true) => true,
        (false, _) => of_options && !command.has_subcommands(),
    }
}

#[test]
fn every_call_in_the_documents_is_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the repository");
    let mut files = vec![root.join("README.md"), root.join("ARCHITECTURE.md"), root.join("CONTRIBUTING.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        let entries = folder.read_dir().expect("documents").map(|entry| entry.expect("one").path());
        let (below, pages): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        folders.extend(below);
        files.extend(pages);
    }
    let all = all();
    let mut count = 0;
    for file in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "md")) {
        let text = std::fs::read_to_string(file).expect("a document");
        for call in calls(&text) {
            count += 1;
            assert_eq!(unknown(&all, call), None, "{}: {call}", file.display());
        }
    }
    assert!(count > 40, "{count} calls");
}

#[test]
fn what_is_gone_is_found() {
    let all = all();
    let gone = |call| unknown(&all, call).expect("it is none");
    assert_eq!(gone("remora serve kv --desing farm"), "--desing");
    assert_eq!(gone("remora serve table"), "table");
    assert_eq!(gone("remora watch"), "watch");
    assert_eq!(unknown(&all, "remora bench kv|block|txn --json > rows.jsonl"), None);
}

//! The rules against words of unfinished code, and against clocks, sockets and threads in the reproducible
//! crates.

use crate::Fault;
use crate::layers;
use crate::tokens::{Scope, is_ident, is_punct, line, test_modules, walk};
use crate::tree::File;
use proc_macro2::{Delimiter, TokenTree};
use std::collections::BTreeSet;

/// The macros of unfinished code, or of an unfinished search for a fault.
const UNFINISHED: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// The marks of notes to oneself.
const NOTES: [&str; 3] = [concat!("FIX", "ME"), concat!("TO", "DO"), concat!("XX", "X")];

/// The paths of the machine on which a text was written.
const MACHINE: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// The unordered maps. They hash with a random key, so two runs with one seed would differ.
const UNORDERED: [&str; 4] = ["HashMap", "HashSet", "DefaultHasher", "RandomState"];

/// The modules of `std` that a reproducible crate may not use.
const IMPURE: [&str; 6] = ["time", "net", "fs", "env", "process", "thread"];

/// The names of `std::net` that are plain values.
const ADDRESSES: [&str; 6] = ["IpAddr", "Ipv4Addr", "Ipv6Addr", "SocketAddr", "SocketAddrV4", "SocketAddrV6"];

/// Reports unfinished code in any Rust file.
pub fn unfinished(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let walked = walk(file, Scope::All, &mut |tokens| {
            for (index, token) in tokens.iter().enumerate() {
                let word = UNFINISHED.into_iter().find(|word| is_ident(Some(token), word));
                if let (Some(word), true) = (word, is_punct(tokens.get(index + 1), '!')) {
                    faults.push(Fault::new(
                        &file.path,
                        line(token),
                        format!("`{word}!` is not finished code"),
                    ));
                }
            }
        });
        faults.extend(walked.err());
    }
    faults
}

/// Reports notes to oneself and paths of one machine in any text file.
pub fn notes(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files {
        for (index, text) in file.text.lines().enumerate() {
            let mut words = text.split(|c: char| !c.is_alphanumeric());
            if let Some(note) = words.find(|word| NOTES.contains(word)) {
                faults.push(Fault::new(&file.path, index + 1, format!("{note}: finish it, or file it")));
            }
            if let Some(path) = MACHINE.iter().find(|path| text.contains(**path)) {
                faults.push(Fault::new(&file.path, index + 1, format!("{path} exists on one machine only")));
            }
        }
    }
    faults
}

/// Reports clocks, sockets, files, threads and unordered maps in the non-test code of reproducible crates.
pub fn impure(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut tests = BTreeSet::new();
    for file in files.iter().filter(|file| file.is_source()) {
        tests.extend(test_modules(file).into_iter().map(|module| (file.member(), module)));
    }
    for file in files.iter().filter(|file| file.is_source()) {
        if tests.contains(&(file.member(), file.module().to_owned())) {
            continue;
        }
        let Some(layer) = layers::find(file.member()).filter(|layer| layer.reproducible) else { continue };
        let walked = walk(file, Scope::Shipped, &mut |tokens| {
            for (index, token) in tokens.iter().enumerate() {
                let taken = if is_ident(Some(token), "std") { taken_from(tokens, index) } else { Vec::new() };
                // `memory` reads the current thread's ID to detect re-entry and starts no threads. It aborts
                // the process in place of unsound behaviour.
                let aborts = is_ident(tokens.get(index + 6), "abort");
                let addresses = ADDRESSES.into_iter().any(|name| is_ident(tokens.get(index + 6), name));
                let may = |part: &str| match part {
                    "net" => addresses,
                    "thread" => layer.name == "memory",
                    "process" => layer.name == "memory" && aborts,
                    _ => false,
                };
                for part in taken.iter().filter(|part| IMPURE.contains(&part.as_str()) && !may(part)) {
                    faults.push(Fault::new(
                        &file.path,
                        line(token),
                        format!("std::{part} in {}, which must be reproducible", layer.name),
                    ));
                }
                if let Some(map) = UNORDERED.into_iter().find(|map| is_ident(Some(token), map)) {
                    faults.push(Fault::new(
                        &file.path,
                        line(token),
                        format!("{map} has no order: two runs would differ"),
                    ));
                }
                if layer.name == "memory" && is_ident(Some(token), "spawn") {
                    faults.push(Fault::new(&file.path, line(token), "memory starts no threads"));
                }
            }
        });
        faults.extend(walked.err());
    }
    faults
}

/// Returns the name after `std` at index `index`: the `a` of `std::a::b`, or every first name of `std::{a::b,
/// c}`.
fn taken_from(tokens: &[TokenTree], index: usize) -> Vec<String> {
    if !(is_punct(tokens.get(index + 1), ':') && is_punct(tokens.get(index + 2), ':')) {
        return Vec::new();
    }
    match tokens.get(index + 3) {
        Some(TokenTree::Ident(name)) => vec![name.to_string()],
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            let firsts = inner.split(|token| is_punct(Some(token), ',')).filter_map(|part| part.first());
            firsts.map(ToString::to_string).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_macros_are_faults_and_their_names_in_strings_are_not() {
        for word in UNFINISHED {
            assert_eq!(
                unfinished(&[File::sample("cli/src/a.rs", &format!("fn a() {{ {word}!() }}"))]).len(),
                1
            );
        }
        assert_eq!(
            unfinished(&[File::sample("cli/src/a.rs", "const A: &str = \"todo!\"; fn todo() {}")]),
            []
        );
    }

    #[test]
    fn notes_and_machine_paths_are_faults_in_every_text() {
        for bad in [NOTES[0], NOTES[1], NOTES[2], &format!("see {}x", MACHINE[0]), MACHINE[1]] {
            assert_eq!(notes(&[File::sample("docs/A.md", &format!("fine\n{bad}\n"))]).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_pure_crate_has_no_clock_no_socket_no_thread_and_no_unordered_map() {
        for bad in [
            "use std::time::Instant;",
            "use std::{fmt, net::UdpSocket};",
            "fn a() { std::thread::spawn(b) }",
            "fn a() { let now = ::std::time::SystemTime::now(); }",
            "use std::collections::HashMap;",
            "macro_rules! m { () => { std::fs::read(\"a\") } }",
        ] {
            assert!(!impure(&[File::sample("transport/src/a.rs", bad)]).is_empty(), "{bad}");
        }
        assert_eq!(
            impure(&[File::sample("transport/src/a.rs", "use std::{fmt, ops::Add}; struct Instant(u64);")]),
            []
        );
        assert_eq!(impure(&[File::sample("fabric/src/a.rs", "use std::net::Ipv4Addr;")]), []);
        assert_eq!(
            impure(&[File::sample("fabric/src/a.rs", "use std::net::{Ipv4Addr, UdpSocket};")]).len(),
            1
        );
        assert_eq!(impure(&[File::sample("fabric/src/a.rs", "use std::time::Instant;")]).len(), 1);
        assert_eq!(impure(&[File::sample("host/src/a.rs", "use std::time::Instant;")]), []);
    }

    #[test]
    fn tests_of_a_pure_crate_may_use_a_thread() {
        let inline = "#[cfg(test)] mod tests { use std::thread; }";
        assert_eq!(impure(&[File::sample("nic/src/a.rs", inline)]), []);
        assert_eq!(impure(&[File::sample("nic/tests/a.rs", "use std::thread;")]), []);
        let declared = File::sample("nic/src/a.rs", "#[cfg(test)] mod model; mod real;");
        let model = "nic/src/a/model.rs";
        let real = "nic/src/a/real.rs";
        assert_eq!(impure(&[declared.clone(), File::sample(model, "use std::thread;")]), []);
        assert_eq!(impure(&[declared, File::sample(real, "use std::thread;")]).len(), 1);
    }

    #[test]
    fn memory_aborts_but_asks_nothing_else_of_the_process() {
        assert_eq!(impure(&[File::sample("memory/src/a.rs", "fn a() { std::process::abort(); }")]), []);
        assert_eq!(impure(&[File::sample("memory/src/a.rs", "fn a() { std::process::exit(1); }")]).len(), 1);
        assert_eq!(impure(&[File::sample("nic/src/a.rs", "fn a() { std::process::abort(); }")]).len(), 1);
    }

    #[test]
    fn memory_asks_which_thread_it_is_but_starts_none() {
        assert_eq!(impure(&[File::sample("memory/src/a.rs", "fn a() { std::thread::current(); }")]), []);
        assert_eq!(impure(&[File::sample("memory/src/a.rs", "fn a() { std::thread::spawn(b); }")]).len(), 1);
    }
}

//! `remora kv shell`: executes the commands on standard input over one connection.

use std::io::{BufRead as _, IsTerminal as _};

use anyhow::{Result, bail, ensure};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use remora_options::escape::escape;
use remora_options::print;
use remora_service::kv::KvSession;

const HELP: &str = "get KEY...        print values
put KEY VALUE     store a value: the rest of the line, spaces and all
delete KEY...     remove keys
scan [PREFIX]     print keys
quit              end, as Ctrl-D does";

/// A parsed line of the shell.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Nothing,
    Get(Vec<&'a str>),
    Put(&'a str, &'a str),
    Delete(Vec<&'a str>),
    Scan(&'a str),
    Help,
    Quit,
}

impl<'a> Line<'a> {
    fn parse(text: &'a str) -> Result<Line<'a>> {
        let text = text.trim_end_matches(['\r', '\n']).trim_start();
        let (verb, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        let words = || rest.split_whitespace().collect::<Vec<_>>();
        let keys = || match words() {
            keys if keys.is_empty() => bail!("no key given: `{verb} KEY`"),
            keys => Ok(keys),
        };
        Ok(match verb {
            "" => Line::Nothing,
            "get" => Line::Get(keys()?),
            "put" | "set" => match rest.trim_start().split_once([' ', '\t']) {
                Some((key, value)) => Line::Put(key, value),
                None => bail!("no value given: `put KEY VALUE`"),
            },
            "delete" | "del" => Line::Delete(keys()?),
            "scan" => match words()[..] {
                [] => Line::Scan(""),
                [prefix] => Line::Scan(prefix),
                _ => bail!("too many prefixes: `scan PREFIX` takes one"),
            },
            "help" | "?" => Line::Help,
            "quit" | "exit" => Line::Quit,
            _ => bail!("unknown command {verb:?}; commands: get, put, delete, scan, help, quit"),
        })
    }
}

/// Executes the lines of standard input until it ends.
///
/// # Errors
/// Fails if the connection fails, or if a line failed and standard input is not a terminal.
pub(crate) fn run(session: &mut impl KvSession) -> Result<()> {
    if std::io::stdin().is_terminal() {
        return typed(session);
    }
    let mut bad = 0u64;
    for line in std::io::stdin().lock().lines() {
        match act(session, &line?) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                bad += 1;
                print::line(format_args!("error: {error:#}"));
            }
        }
    }
    ensure!(bad == 0, "{bad} lines failed: their answers begin with `error:`");
    Ok(())
}

/// Reads lines from a terminal, with editing and a history.
fn typed(session: &mut impl KvSession) -> Result<()> {
    let mut editor = DefaultEditor::new()?;
    eprintln!("get, put, delete, scan, help or quit; end with Ctrl-D");
    loop {
        match editor.readline("kv> ") {
            Ok(line) => {
                editor.add_history_entry(&line)?;
                match act(session, &line) {
                    Ok(true) => {}
                    Ok(false) => return Ok(()),
                    Err(error) => print::line(format_args!("error: {error:#}")),
                }
            }
            Err(ReadlineError::Eof | ReadlineError::Interrupted) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Executes a line. Returns false if it was the last one (`quit`).
fn act(session: &mut impl KvSession, line: &str) -> Result<bool> {
    match Line::parse(line)? {
        Line::Nothing => {}
        Line::Help => print::line(HELP),
        Line::Quit => return Ok(false),
        Line::Get(keys) => {
            for key in keys {
                match session.get(key.as_bytes())? {
                    Some(value) => print::bytes(&[&escape(&value)[..], b"\n"].concat()),
                    None => bail!("no such key: {key}"),
                }
            }
        }
        Line::Put(key, value) => {
            session.put(key.as_bytes(), value.as_bytes())?;
            print::line("stored");
        }
        Line::Delete(keys) => {
            for key in keys {
                ensure!(session.delete(key.as_bytes())?, "no such key: {key}");
                print::line("deleted");
            }
        }
        Line::Scan(prefix) => session.list(&mut |key| {
            if key.starts_with(prefix.as_bytes()) {
                print::bytes(&[&escape(key)[..], b"\n"].concat());
            }
            Ok(())
        })?,
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_to_do_and_mistakes_say_what_is_right() {
        assert_eq!(Line::parse("  \r\n").unwrap(), Line::Nothing);
        assert_eq!(Line::parse("get a b\n").unwrap(), Line::Get(vec!["a", "b"]));
        assert_eq!(Line::parse("put a  two words \r\n").unwrap(), Line::Put("a", " two words "));
        assert_eq!(Line::parse("del a").unwrap(), Line::Delete(vec!["a"]));
        assert_eq!(Line::parse("scan").unwrap(), Line::Scan(""));
        assert_eq!(Line::parse("quit").unwrap(), Line::Quit);
        for (line, words) in [
            ("get", "get KEY"),
            ("put a", "put KEY VALUE"),
            ("scan a b", "scan PREFIX"),
            ("frobnicate", "unknown command"),
        ] {
            assert!(format!("{:#}", Line::parse(line).unwrap_err()).contains(words), "{line}");
        }
    }
}

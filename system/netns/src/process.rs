//! Processes that a test starts.

use std::io::{BufRead, BufReader, Read, Write};
use std::ops::{Deref, DerefMut};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A process that is killed when this value is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Standard output of a process that [`start_piped`](Process::start_piped) started.
    output: Option<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a process. Panics if that is impossible.
    #[track_caller]
    pub fn start(command: &mut Command) -> Process {
        let child = command.spawn();
        let child = child.unwrap_or_else(|error| panic!("cannot start {command:?} (`make setup`): {error}"));
        Process { child, output: None }
    }

    /// Starts a process with pipes to its standard input and from its standard output.
    #[track_caller]
    pub fn start_piped(command: &mut Command) -> Process {
        let mut process = Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        process.output = process.child.stdout.take().map(BufReader::new);
        process
    }

    /// Writes a line to the standard input, which must be a pipe.
    #[track_caller]
    pub fn send(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{line}").expect("the process reads its input");
    }

    /// Returns the next line of the standard output, which must be a pipe. Panics if the process has ended.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.as_mut().expect("a pipe").read_line(&mut line).expect("a line");
        assert!(line.ends_with('\n'), "the process ended, or printed no whole line: {line:?}");
        line.trim_end().to_owned()
    }

    /// Returns the rest, behind `word`, of the next line that contains it.
    #[track_caller]
    pub fn line_with(&mut self, word: &str) -> String {
        loop {
            if let Some((_, rest)) = self.line().split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Sends SIGKILL and waits until the process has ended.
    pub fn kill(&mut self) {
        self.child.kill().expect("a process to kill");
        self.child.wait().expect("a child");
    }

    /// Closes the standard input and waits until the process has ended with success. Returns the rest of its
    /// output.
    #[track_caller]
    pub fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        if let Some(output) = &mut self.output {
            output.read_to_string(&mut rest).expect("text");
        }
        assert!(self.child.wait().expect("a child").success(), "{rest}");
        rest
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_to_a_process_and_come_from_it_until_it_ends_or_is_killed() {
        let mut cat = Process::start_piped(&mut Command::new("cat"));
        cat.send("one");
        cat.send("two is here");
        cat.send("three");
        assert_eq!((cat.line(), cat.line_with("two ")), ("one".to_owned(), "is here".to_owned()));
        assert_eq!(cat.end(), "three\n");
        let mut other = Process::start_piped(&mut Command::new("cat"));
        other.kill();
        assert!(!other.wait().unwrap().success());
    }
}

//! The NIC daemon as a command.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;

use crate::running::{command, remora};

/// A daemon that runs; it never outlives its test.
pub struct Lender {
    child: Child,
    output: BufReader<ChildStdout>,
    /// Where it listens.
    pub path: PathBuf,
}

impl Lender {
    pub fn start(test: &str, more: &[&str]) -> Lender {
        let path = std::env::temp_dir().join(format!("remora-nicd-{}-{test}", std::process::id()));
        let mut command = command(&["nicd", "--json", "--socket"]);
        command.arg(&path).args(more).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the daemon");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let mut lender = Lender { child, output, path };
        let ready = lender.next();
        assert_eq!(ready["socket"], lender.at(), "{ready}");
        lender
    }

    pub fn at(&self) -> &str {
        self.path.to_str().expect("a name")
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).expect("a signal");
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.path);
    }
}

#[test]
fn a_daemon_says_who_is_there_and_ends_when_it_is_told_to() {
    let mut lender = Lender::start("who", &["--port", "udp"]);
    let facts: Value =
        serde_json::from_str(&remora(&["devinfo", "--nicd", lender.at(), "--json"]).good()).expect("JSON");
    assert_eq!((&facts["port"], &facts["port_manner"]), (&"udp".into(), &"through its daemon".into()));
    let context = verbs::Device::nicd(&lender.path).keep("a tenant").open().expect("an attachment");
    let domain = context.alloc_pd().expect("a domain");
    let _region = domain.allocate(4096, verbs::Access::LOCAL_WRITE).expect("a region");
    lender.signal(rustix::process::Signal::USR1);
    let tenant = lender.next();
    assert_eq!((&tenant["tenant"], &tenant["attached"]), (&"a tenant".into(), &true.into()), "{tenant}");
    assert_eq!((&tenant["regions"], &tenant["bytes"]), (&1.into(), &4096.into()), "{tenant}");
    lender.signal(rustix::process::Signal::TERM);
    assert!(lender.child.wait().expect("its end").success());
    assert!(!Path::new(&lender.path).exists(), "the socket is taken away");
}

#[test]
fn what_is_wrong_with_a_daemon_is_told_in_a_line() {
    let lender = Lender::start("wrong", &[]);
    remora(&["nicd", "--socket", lender.at()]).one_line("choose another --socket");
    remora(&["nicd", "--socket", "/nowhere/nic.sock"]).one_line("no such folder");
    remora(&["devinfo", "--nicd", "/nowhere/nic.sock"]).one_line("start it by `remora nicd");
    remora(&["devinfo", "--nicd", lender.at(), "--port", "udp"]).bad_arguments("cannot be used with");
    remora(&["nicd", "--pairs", "0"]).bad_arguments("1..=16384");
}

//! `scripts/memcached-suite`: its report on tests that both servers pass, that only memcached passes, and
//! that do not apply.
//!
//! memcached's own tests are in memcached's repository. The tests here replace them, and start servers in
//! the same way.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::running::{Ended, finish};

/// A test that starts a server with memcached's options, sends two requests and compares the answers.
const TEST: &str = r#"
use strict;
use IO::Socket::INET;
my $port = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1)->sockport;
my $child = fork;
exec './timedrun', 600, './memcached-debug', '-U', 0, '-m', 8, '-u', 'nobody', '-o', 'relaxed_privileges', '-p', $port
    unless $child;
my $sock;
for (1 .. 600) {
    last if $sock = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port");
    select undef, undef, undef, 0.05;
}
print "1..2\n";
print $sock "set a 0 0 1\r\nx\r\n";
print <$sock> eq "STORED\r\n" ? "ok 1\n" : "not ok 1\n";
print $sock "stats settings\r\n";
my $said = '';
while (my $line = <$sock>) { last if $line eq "END\r\n"; $said .= $line }
print $said =~ /WORDS/ ? "ok 2 - settings\n" : "not ok 2 - settings\n";
kill 9, $child;
"#;

/// A folder that looks like a checkout of memcached's repository. It is removed at the end.
struct Checkout(PathBuf);

impl Checkout {
    fn new(name: &str, files: &[(&str, &str)]) -> Checkout {
        let path = tempfile::Builder::new().prefix(name).tempdir().expect("a folder").keep();
        std::fs::create_dir_all(path.join("t/lib")).expect("a folder");
        std::fs::write(path.join("t/lib/MemcachedTest.pm"), "1;\n").expect("a file");
        for (file, text) in files {
            std::fs::write(path.join("t").join(file), text).expect("a file");
        }
        Checkout(path)
    }

    fn run(&self, more: &[&str]) -> Ended {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/memcached-suite");
        finish(Command::new(script).arg(&self.0).args(["--remora", crate::running::binary()]).args(more))
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_both_servers_pass_is_as_many_and_what_does_not_apply_is_told() {
    let same = TEST.replace("WORDS", "maxbytes 8388608");
    let checkout = Checkout::new("same", &[("same.t", &same), ("ssl_own.t", "die")]);
    let output = checkout.run(&["--json"]).good();
    let rows: serde_json::Value = serde_json::from_str(&output).expect("JSON");
    assert_eq!(rows[0]["file"], "same.t");
    assert_eq!((&rows[0]["remora"], &rows[0]["memcached"]), (&2.into(), &2.into()), "{output}");
    assert_eq!(rows[0]["verdict"], "as many");
    assert_eq!((&rows[1]["applies"], &rows[1]["why"]), (&false.into(), &"there is no TLS".into()));
    let table = checkout.run(&["--only", "ssl_own"]).good();
    assert!(table.contains("ssl_own.t") && !table.contains("same.t"), "{table}");
}

#[test]
fn a_file_in_which_memcached_passes_more_fails() {
    // memcached has four threads by default.
    let checkout = Checkout::new("fewer", &[("fewer.t", &TEST.replace("WORDS", "num_threads 4"))]);
    let ended = checkout.run(&[]);
    assert_eq!(ended.status, 1, "{}", ended.out);
    assert!(ended.out.contains("1 FEWER") && ended.out.contains("2: settings"), "{}", ended.out);
    // A test that memcached itself does not pass is not compared.
    let checkout = Checkout::new("nothing", &[("nothing.t", "print \"1..1\\nnot ok 1\\n\";")]);
    let ended = checkout.run(&[]);
    assert_eq!(ended.status, 1, "{}", ended.out);
    assert!(ended.out.contains("NOTHING COMPARED"), "{}", ended.out);
}

#[test]
fn a_folder_that_is_no_checkout_is_one_line() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/memcached-suite");
    let ended = finish(Command::new(script).arg(std::env::temp_dir()));
    assert_eq!((ended.status, ended.err.lines().count()), (2, 1), "{}", ended.err);
    assert!(ended.err.contains("is no checkout of memcached's repository"), "{}", ended.err);
}

//! Third-party clients: libmemcached's tools and load generator, and libraries for Python, Go and Node, one
//! of which uses meta commands only.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Served;
use crate::running::{Scratch, finish};

/// Returns the command of a libmemcached tool, which `make setup` installs.
fn tool(name: &str) -> Command {
    Command::new(name)
}

#[test]
fn libmemcacheds_conformance_suite_passes() {
    let server = Served::remora(&[]);
    let ended = finish(tool("memccapable").args(["-a", "-h", "127.0.0.1", "-p", server.port()]));
    let output = ended.good();
    assert_eq!(output.matches("[pass]").count(), 27, "{output}");
    assert!(output.contains("All tests passed"), "{output}");
}

#[test]
fn libmemcacheds_tools_store_read_touch_and_remove() {
    let server = Served::remora(&[]);
    let servers = format!("--servers={}", server.address);
    let run = |name: &str, rest: &[&str]| finish(tool(name).arg(&servers).args(rest));
    let file = Scratch::new(&b"a line\nand another\n".repeat(10_000));
    let key = file.0.file_name().and_then(|name| name.to_str()).expect("a plain name").to_owned();
    run("memccp", &[file.path()]).good();
    assert_eq!(run("memccat", &[&key]).good().trim_end(), "a line\nand another\n".repeat(10_000).trim_end());
    run("memcexist", &[&key]).good();
    run("memctouch", &["--expire=1000", &key]).good();
    assert!(run("memcstat", &[]).good().contains("cmd_touch: 1"));
    run("memcping", &[]).good();
    run("memcrm", &[&key]).good();
    assert_ne!(run("memcexist", &[&key]).status, 0);
    run("memccp", &[file.path()]).good();
    run("memcflush", &[]).good();
    assert_ne!(run("memcexist", &[&key]).status, 0);
}

/// Returns the Python interpreter that `make setup` prepares, unless the environment names another one.
fn python() -> PathBuf {
    let prepared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/python/bin/python3");
    std::env::var_os("REMORA_PYTHON").map_or(prepared, PathBuf::from)
}

/// Returns the folder of the client programs.
fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// Runs the same program against Remora and against memcached, and checks that it succeeds with both.
#[track_caller]
fn passes_against_both(program: &dyn Fn(&Served) -> Command) {
    for server in [Served::remora(&[]), Served::memcached()] {
        let output = finish(&mut program(&server)).good();
        assert!(output.ends_with("passed\n"), "{output}");
    }
}

#[test]
fn pymemcache_and_python_memcached_do_all_they_can() {
    passes_against_both(&|server| {
        let mut command = Command::new(python());
        command.arg(clients().join("python/text.py")).args(["127.0.0.1", server.port()]);
        command
    });
}

#[test]
fn meta_memcache_does_all_it_can_by_meta_commands() {
    passes_against_both(&|server| {
        let mut command = Command::new(python());
        command.arg(clients().join("python/meta.py")).args(["127.0.0.1", server.port()]);
        command
    });
}

#[test]
fn gomemcache_does_all_it_can() {
    // Go's own installer does not add the compiler to PATH.
    let own = "/usr/local/go/bin/go";
    let compiler = if Path::new(own).exists() { own } else { "go" };
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gomemcache");
    let mut build = Command::new(compiler);
    build.current_dir(clients().join("go")).args(["build", "-mod=readonly", "-o"]).arg(&program);
    // `make setup` has downloaded the sources, so the build needs no network.
    finish(build.env("GOPROXY", "off").arg(".")).good();
    passes_against_both(&|server| {
        let mut command = Command::new(&program);
        command.arg(&server.address);
        command
    });
}

#[test]
fn the_node_package_memcached_does_all_it_can() {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/node/node_modules");
    assert!(packages.exists(), "`make setup` installs the package");
    passes_against_both(&|server| {
        let mut command = Command::new("node");
        command.env("NODE_PATH", &packages).arg(clients().join("node/text.js")).arg(&server.address);
        command
    });
}

#[test]
fn a_load_generator_finds_every_value_as_it_stored_it() {
    let server = Served::remora(&["--memory", "256m"]);
    let mut load = tool("memcaslap");
    load.arg(format!("--servers={}", server.address));
    load.args(["--threads=1", "--concurrency=32", "--execute_number=60000", "--verify=1.0", "--division=10"]);
    let output = finish(&mut load).good();
    let figure = |name: &str| -> u64 {
        let line =
            output.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}: "))).expect(&output);
        line.parse().expect("a number")
    };
    assert!(figure("cmd_get") > 10_000 && figure("cmd_set") > 1_000, "{output}");
    assert_eq!((figure("verify_misses"), figure("verify_failed")), (0, 0), "{output}");
    assert_eq!(figure("get_misses"), 0, "{output}");
    let mut talk = server.talk();
    assert_eq!(talk.stat("evictions"), 0);
    assert!(talk.stat("get_hits") > 10_000);
}

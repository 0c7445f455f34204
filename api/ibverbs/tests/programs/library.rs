//! The libraries as `scripts/dropin` links them, and programs that use them under a time limit. The tests of
//! librdmacm include this file, too.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The root of the repository.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The headers that the C programs of both libraries' tests use.
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ibverbs/tests/c");
/// Time limit of a program in seconds.
const LIMIT: &str = "120";

/// The folder with the libraries.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        // The static libraries are beside this test; there may be older ones, too.
        let test = std::env::current_exe().unwrap();
        let built = test.parent().unwrap();
        let folder = built.join("dropin");
        for name in crate::LIBRARIES {
            let mut script = Command::new(format!("{ROOT}/scripts/dropin"));
            done(script.arg("--archive").arg(newest_archive(built, name)).arg(&folder));
        }
        folder
    });
    &FOLDER
}

/// Returns the static library that was built last.
fn newest_archive(built: &Path, library: &str) -> PathBuf {
    let archives = std::fs::read_dir(built).unwrap().map(|entry| entry.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(&format!("libremora_{library}")) && name.ends_with(".a")
    });
    let made = |path: &PathBuf| path.metadata().unwrap().modified().unwrap();
    archives.max_by_key(made).unwrap_or_else(|| panic!("cargo build -p remora-{library}"))
}

/// Returns lines of "version symbol" for the symbols of a file whose versions begin with `version`: the
/// exported ones, or with `wanted` the undefined ones.
pub(crate) fn symbols(file: &str, version: &str, wanted: bool) -> BTreeSet<String> {
    let table = done(Command::new("objdump").args(["-T", file]));
    let lines = table.lines().filter(|line| line.contains(version) && line.contains("*UND*") == wanted);
    let pairs = lines.filter_map(|line| {
        let mut words = line.split_whitespace().rev();
        let symbol = words.next()?;
        let version = words.next()?;
        (symbol != version).then(|| format!("{} {symbol}", version.trim_matches(['(', ')'])))
    });
    pairs.collect()
}

/// Runs a command, which must succeed. Returns its output.
#[track_caller]
pub(crate) fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} (`make setup`): {error}"));
    succeeded(command, &output)
}

/// Returns the output of a command, which must have succeeded.
#[track_caller]
pub(crate) fn succeeded(command: &Command, output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Returns the words of a command under Valgrind. Status 9 reports an invalid access, uninitialised bytes in
/// a decision or a system call, or leaked memory. No error is suppressed.
pub(crate) fn under_valgrind<'a>(words: &[&'a str]) -> Vec<&'a str> {
    // The NIC has threads of its own, which must not starve the others.
    let valgrind = ["valgrind", "--quiet", "--fair-sched=try", "--error-exitcode=9"];
    let leaks = ["--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"];
    [&valgrind[..], &leaks, words].concat()
}

/// A loopback address that no other program of these tests has.
pub(crate) fn address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let process = std::process::id();
    let own = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(own < 255, "a test process has at most 254 addresses");
    format!("127.{}.{}.{own}", 1 + (process >> 8) % 127, process % 256)
}

/// A program on this library, at an address that it has alone.
pub(crate) fn program(words: &[&str]) -> Command {
    let mut command = limited(words);
    command.env("REMORA_ADDRESS", address()).env("REMORA_ALONE", "1");
    command
}

/// A program on this library that shares the address with others.
pub(crate) fn program_at(address: &str, words: &[&str]) -> Command {
    shares(limited(words), address)
}

/// A program on this library whose device has all addresses of its network namespace.
pub(crate) fn program_everywhere(words: &[&str]) -> Command {
    let mut command = limited(words);
    command.env_remove("REMORA_ADDRESS").env("REMORA_COMMAND", remora());
    command
}

/// Like [`program_at`], without a time limit, for a program that is killed: `timeout` would survive it.
pub(crate) fn unlimited_at(address: &str, words: &[&str]) -> Command {
    shares(unlimited(words), address)
}

fn shares(mut command: Command, address: &str) -> Command {
    command.env("REMORA_ADDRESS", address).env("REMORA_COMMAND", remora());
    command
}

fn limited(words: &[&str]) -> Command {
    unlimited(&[&["timeout", "--signal=KILL", LIMIT], words].concat())
}

fn unlimited(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("LD_LIBRARY_PATH", folder());
    command
}

/// The `remora` command, which is built beside the tests' folder.
pub(crate) fn remora() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let command = test.ancestors().nth(2).unwrap().join("remora");
    assert!(command.exists(), "{} is missing: cargo build -p remora-cli", command.display());
    command
}

/// Compiles a program of `tests/c` against the system's headers, and runs it with these arguments by the
/// command that `make` returns. Returns its output.
#[track_caller]
pub(crate) fn c_program(name: &str, words: &[&str], make: &dyn Fn(&[&str]) -> Command) -> String {
    let built = built_c_program(name);
    let words: Vec<&str> = std::iter::once(built.as_str()).chain(words.iter().copied()).collect();
    let mut command = make(&words);
    let printed = command.output().unwrap();
    std::fs::remove_file(&built).unwrap();
    succeeded(&command, &printed).trim().to_owned()
}

/// Compiles a program of `tests/c` against the system's headers. Returns the path of the executable, which
/// the caller removes.
#[track_caller]
pub(crate) fn built_c_program(name: &str) -> String {
    // Tests of one process may run the same program at the same time.
    static BUILT: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id();
    let own = BUILT.fetch_add(1, Ordering::Relaxed);
    let built = std::env::temp_dir().join(format!("remora-{process}-{own}-{name}"));
    let source = format!("{}/tests/c/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_DEFAULT_SOURCE", "-g", "-Wall", "-Wextra", "-Werror", "-I", HEADERS, "-o"]);
    cc.arg(&built).arg(source).arg("-L").arg(folder()).args(crate::LIBRARIES.map(|name| format!("-l{name}")));
    done(cc.args(["-lpthread", "-ldl"]));
    built.to_str().unwrap().to_owned()
}

//! Tests that every example ends successfully and prints what it stored.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Each example, and the line that it prints.
const EXAMPLES: [(&str, &str); 5] = [
    ("block", "block 7 begins with 1\n"),
    ("cache", "colour: blue\n"),
    ("kv", "colour: blue\n"),
    ("kv_rma", "colour: blue\n"),
    ("txn", "alice and bob: (Some([55, 48]), Some([51, 48]))\n"),
];
/// Maximum run time of an example.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program of an example. Cargo builds it into the folder beside that of this test.
fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("this test's own path");
    let profile = own.parent().and_then(Path::parent).expect("the folder of the profile");
    profile.join("examples").join(name)
}

/// Runs an example and returns its output.
fn run(name: &str) -> String {
    let program = program(name);
    assert!(
        program.is_file(),
        "{} is not built: run scripts/unit, or cargo build --examples",
        program.display()
    );
    let mut child = Command::new(&program).stdout(Stdio::piped()).spawn().expect("the example starts");
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("the example's status") {
            break status;
        }
        if started.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the example {name} does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut printed = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut printed).expect("text");
    assert!(status.success(), "the example {name} ended with {status} and printed {printed:?}");
    printed
}

/// Regression: the example of blocks stopped its replicas when two of three had answered, while the
/// third still waited for them.
#[test]
fn every_example_prints_what_it_stored() {
    for (name, printed) in EXAMPLES {
        assert_eq!(run(name), printed, "the example {name}");
    }
}

#[test]
fn no_example_is_left_out() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = std::fs::read_dir(folder).expect("the examples").map(|file| file.expect("a file").path());
    let mut names: Vec<String> =
        files.map(|file| file.file_stem().expect("a name").to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, EXAMPLES.map(|(name, _)| name));
}

//! Tests of `scripts/setup` on a machine where another process holds apt's lock.

use std::fs;
use std::process::Output;

use crate::place::Place;

const TOOLS: &str = "env bash dirname sed grep cat";
/// A replacement for apt-get. It fails with the lines of the file `locked`, one in each call, and then
/// succeeds.
const APT: &str = "#!/bin/bash
folder=$(dirname \"$0\")
echo \"$*\" >>\"$folder/asked\"
if [ -s \"$folder/locked\" ]; then
    head -n 1 \"$folder/locked\" >&2
    sed -i 1d \"$folder/locked\"
    exit 100
fi
";
const LOCK: &str =
    "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 77 (unattended-upgr)\n";

/// Runs the script for a machine that lacks binutils and every package, as root.
fn setup(name: &str, locked: &str) -> (Place, Output) {
    let place = Place::new(&format!("{TOOLS} head"), name);
    place.write("tools/apt-get", APT);
    place.write("tools/locked", locked);
    place.write("tools/id", "#!/bin/bash\necho 0\n");
    place.write("tools/sleep", "#!/bin/bash\n");
    place.write("tools/cc", "");
    place.write("tools/rustup", "#!/bin/bash\nprintf 'rustfmt\\nclippy\\nwasm32-unknown-unknown\\n'\n");
    let output = place.script("setup", &["dropin"]).output().unwrap();
    (place, output)
}

/// Regression: `scripts/setup` failed at once while unattended upgrades held apt's lock.
#[test]
fn a_lock_of_apt_is_waited_for_and_told_once() {
    let (place, output) = setup("waits", &LOCK.repeat(3));
    assert!(output.status.success(), "{output:?}");
    let words = String::from_utf8(output.stdout).unwrap();
    let notices: Vec<&str> = words.lines().filter(|line| line.contains("waiting")).collect();
    assert!(notices.len() == 1 && notices[0].contains("process 77 (unattended-upgr)"), "{words}");
    let asked = fs::read_to_string(place.0.join("tools/asked")).unwrap();
    assert_eq!(asked.lines().filter(|line| line.starts_with("update")).count(), 4, "{asked}");
}

#[test]
fn a_lock_of_apt_that_is_never_free_and_another_fault_end_the_setup() {
    let (_place, output) = setup("never", &LOCK.repeat(1000));
    assert!(
        !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("held by process 77")
    );
    let (place, output) = setup("other", "E: Unable to locate package binutils\n");
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(fs::read_to_string(place.0.join("tools/asked")).unwrap().lines().count(), 1);
}

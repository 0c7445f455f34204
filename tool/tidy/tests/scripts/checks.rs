//! Tests of `scripts/checks`, through which `make test` runs its checks.

use crate::place::Place;

const TOOLS: &str = "env bash dirname rm python3 sort wc";

/// Regression: `make test` went on for an hour without the tools after a failed setup.
#[test]
fn a_setup_that_fails_ends_all_checks_and_has_its_row_and_another_check_does_not() {
    let place = Place::new(TOOLS, "checks");
    place.write("tools/make", "#!/bin/bash\necho \"made $1\"\n[ \"$1\" != \"$FAILS\" ]\n");
    let run = |fails: &str| {
        let output = place.script("checks", &["setup", "fmt", "tidy"]).env("FAILS", fails).output().unwrap();
        assert!(!output.status.success(), "{fails}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let ended = run("setup");
    assert!(!ended.contains("made fmt") && ended.contains("setup"), "{ended}");
    let row = |words: &str, check: &str, verdict: &str| {
        words.lines().any(|line| line.starts_with(check) && line.ends_with(verdict))
    };
    assert!(row(&ended, "setup", "FAILED") && row(&ended, "FAILED: setup", ""), "{ended}");
    let went_on = run("fmt");
    assert!(went_on.contains("made tidy") && row(&went_on, "fmt", "FAILED"), "{went_on}");
    assert!(row(&went_on, "tidy", "passed"), "{went_on}");
}

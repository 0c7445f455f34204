//! Tests of `scripts/dropin` where no library can be linked.

use crate::place::Place;

#[test]
fn a_compiler_for_musl_is_refused_in_one_line_before_anything_is_built() {
    let place = Place::new("env bash dirname", "musl");
    place.write("tools/gcc", "#!/bin/bash\necho x86_64-alpine-linux-musl\n");
    place.write("tools/cargo", "#!/bin/bash\necho built\n");
    let output = place.script("dropin", &[]).env_remove("CC").env_remove("REMORA_GLIBC").output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{output:?}");
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.lines().count() == 1 && words.contains("need glibc, and gcc links for musl"), "{words}");
}

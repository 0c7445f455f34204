//! The symbols of the library and their versions.

use crate::library::{ROOT, done, folder, symbols};
use std::collections::BTreeSet;
use std::process::Command;

fn exported() -> BTreeSet<String> {
    symbols(folder().join("librdmacm.so.1").to_str().unwrap(), "RDMACM_", false)
}

/// Regression: the library lacked the symbols of RDMACM_1.4 and RDMACM_1.5, and programs linked to them
/// did not start.
#[test]
fn the_library_exports_each_listed_symbol_by_its_version_and_nothing_else() {
    let listed: BTreeSet<String> = include_str!("../symbols.txt").lines().map(str::to_owned).collect();
    assert_eq!(exported(), listed);
    let library = folder().join("librdmacm.so.1");
    let dynamic = done(Command::new("objdump").arg("-p").arg(&library));
    for word in ["librdmacm.so.1", "libibverbs.so.1"] {
        assert!(dynamic.contains(word), "{word}: {dynamic}");
    }
    assert!(done(Command::new("readelf").arg("-d").arg(&library)).contains("NODELETE"));
}

#[test]
fn the_library_knows_the_device_by_public_symbols_alone() {
    let wanted = symbols(folder().join("librdmacm.so.1").to_str().unwrap(), "IBVERBS_", true);
    assert!(wanted.len() > 10, "{wanted:?}");
    assert!(wanted.iter().all(|symbol| !symbol.contains("PRIVATE")), "{wanted:?}");
}

#[test]
fn debians_library_has_no_other_symbols_but_those_of_later_versions_and_its_programs_find_theirs() {
    let debians = symbols("/usr/lib/x86_64-linux-gnu/librdmacm.so.1", "RDMACM_", false);
    let later = |symbol: &String| symbol.starts_with("RDMACM_1.4") || symbol.starts_with("RDMACM_1.5");
    let ours: BTreeSet<String> = exported().into_iter().filter(|symbol| !later(symbol)).collect();
    let theirs: BTreeSet<String> = debians.iter().filter(|symbol| !later(symbol)).cloned().collect();
    assert_eq!(ours, theirs);
    for file in ["rping", "mckey", "rstream", "rdma_xserver", "ib_write_bw", "qperf"] {
        let wanted = symbols(&format!("/usr/bin/{file}"), "RDMACM_", true);
        assert!(!wanted.is_empty(), "{file}");
        assert!(wanted.is_subset(&debians), "{file}: {wanted:?}");
    }
}

#[test]
fn every_symbol_has_its_state_in_the_documents() {
    let text = std::fs::read_to_string(format!("{ROOT}/docs/reference/functions.md")).unwrap();
    for line in include_str!("../symbols.txt").lines() {
        let (_, symbol) = line.split_once(' ').unwrap();
        assert!(text.contains(&format!("`{symbol}`")), "{line}");
    }
}

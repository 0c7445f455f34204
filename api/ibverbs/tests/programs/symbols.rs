//! The symbols of the library and their versions.

use crate::library::{done, folder, symbols};
use std::collections::BTreeSet;
use std::process::Command;

/// Returns lines of "version symbol" that `objdump` finds in a library.
fn exported(library: &str) -> BTreeSet<String> {
    symbols(library, "IBVERBS_", false)
}

/// Returns lines of "version symbol" for the private versions of all releases.
fn private() -> impl Iterator<Item = String> {
    let lines = include_str!("../../private-symbols.txt").lines().filter(|line| !line.starts_with('#'));
    lines.flat_map(|line| {
        let (symbol, versions) = line.split_once(' ').unwrap();
        versions.split(' ').map(move |version| format!("IBVERBS_PRIVATE_{version} {symbol}"))
    })
}

#[test]
fn the_library_exports_each_listed_symbol_by_its_version_and_nothing_else() {
    let library = folder().join("libibverbs.so.1");
    let public = include_str!("../symbols.txt").lines().map(str::to_owned);
    let listed: BTreeSet<String> = public.chain(private()).collect();
    assert_eq!(exported(library.to_str().unwrap()), listed);
    let dynamic = done(Command::new("objdump").arg("-p").arg(&library));
    assert!(dynamic.contains("libibverbs.so.1"), "the library's name: {dynamic}");
    assert!(done(Command::new("readelf").arg("-d").arg(&library)).contains("NODELETE"));
}

/// Returns the versions of symbols that a program or library needs of libibverbs.
fn wanted(file: &str) -> BTreeSet<String> {
    symbols(file, "IBVERBS_", true)
}

#[test]
fn every_symbol_that_debians_programs_and_providers_want_is_there() {
    let library = exported(folder().join("libibverbs.so.1").to_str().unwrap());
    let libraries = "/usr/lib/x86_64-linux-gnu";
    let files = [
        "/usr/bin/ibv_devinfo",
        "/usr/bin/ibv_xsrq_pingpong",
        "/usr/bin/ib_send_bw",
        "/usr/bin/ib_atomic_lat",
        "/usr/bin/qperf",
        "/usr/bin/rping",
        &format!("{libraries}/libmlx5.so.1"),
        &format!("{libraries}/libefa.so.1"),
        &format!("{libraries}/librdmacm.so.1"),
    ];
    for file in files {
        let wanted = wanted(file);
        assert!(!wanted.is_empty(), "{file}");
        let missing: Vec<_> = wanted.difference(&library).collect();
        assert!(missing.is_empty(), "{file} wants {missing:?}");
    }
}

#[test]
fn every_public_symbol_has_its_state_in_the_documents() {
    let text =
        std::fs::read_to_string(format!("{}/docs/reference/functions.md", crate::library::ROOT)).unwrap();
    for line in include_str!("../symbols.txt").lines() {
        let (version, symbol) = line.split_once(' ').unwrap();
        assert!(version.starts_with("IBVERBS_1.") && text.contains(&format!("`{symbol}`")), "{line}");
    }
}

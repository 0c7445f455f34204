//! A comparison of every size and offset of the public structs with Debian's headers, by means of the C
//! compiler.

use super::{Layout, cma, completion, context, device, memory, objects, queue_pair, receive, sa, work};
use std::fmt::Write;
use std::process::Command;

/// The structs of `verbs.h` and `sa.h`.
const VERBS: [&[Layout]; 9] = [
    completion::LAYOUTS,
    context::LAYOUTS,
    device::LAYOUTS,
    memory::LAYOUTS,
    objects::LAYOUTS,
    queue_pair::LAYOUTS,
    receive::LAYOUTS,
    sa::LAYOUTS,
    work::LAYOUTS,
];

/// The headers of one of Debian's libraries.
struct Headers {
    library: &'static str,
    names: &'static [&'static str],
    structs: Vec<&'static Layout>,
    /// The number of lines that the comparison must exceed.
    floor: usize,
}

/// Calls `line` for every name and number: "struct x" with its size, and "struct x.field" with its offset.
/// Returns the resulting text.
fn lines(structs: &[&Layout], mut line: impl FnMut(&mut String, &str, usize)) -> String {
    let mut text = String::new();
    for Layout { name, size, fields } in structs {
        line(&mut text, name, *size);
        for (field, offset) in *fields {
            line(&mut text, &format!("{name}.{}", field.trim_start_matches("r#")), *offset);
        }
    }
    text
}

/// Returns a C program that prints one line for each size and offset.
fn program(headers: &Headers) -> String {
    let names = headers.names.iter().chain(&["stddef.h", "stdio.h"]);
    let includes: String = names.map(|name| format!("#include <{name}>\n")).collect();
    let body = lines(&headers.structs, |text, name, _| {
        let value = match name.split_once('.') {
            Some((structure, field)) => format!("offsetof({structure}, {field})"),
            None => format!("sizeof({name})"),
        };
        writeln!(text, "printf(\"{name} %zu\\n\", {value});").unwrap();
    });
    format!("{includes}int main(void) {{\n{body}return 0;\n}}\n")
}

fn compare(headers: &Headers) {
    let library = headers.library;
    let folder = tempfile::tempdir().expect("a folder").keep();
    std::fs::create_dir_all(&folder).unwrap();
    let source = folder.join("layout.c");
    let binary = folder.join("layout");
    std::fs::write(&source, program(headers)).unwrap();
    // The headers contain inline functions that call the libraries, which this program does not use.
    let flags = ["-O1", "-ffunction-sections", "-Wl,--gc-sections", &format!("-l{library}"), "-libverbs"];
    let compiled = Command::new("cc").arg("-o").arg(&binary).arg(&source).args(flags).output().unwrap();
    assert!(
        compiled.status.success(),
        "lib{library}-dev is needed (`scripts/setup dropin` installs it): {}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let printed = Command::new(&binary).output().unwrap();
    let theirs = String::from_utf8(printed.stdout).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let ours = lines(&headers.structs, |text, name, number| writeln!(text, "{name} {number}").unwrap());
    assert!(ours.lines().count() > headers.floor, "{} lines", ours.lines().count());
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs, "ours and Debian's");
    }
    assert_eq!(ours, theirs);
}

#[test]
fn every_size_and_offset_of_verbs_is_that_of_debians_headers() {
    compare(&Headers {
        library: "ibverbs",
        names: &["infiniband/verbs.h", "infiniband/sa.h", "rdma/ib_user_sa.h"],
        structs: VERBS.into_iter().flatten().collect(),
        floor: 500,
    });
}

/// The structs of verbs are part of this test, because programs of rdma_cm use them too.
#[test]
fn every_size_and_offset_of_rdma_cm_is_that_of_debians_headers() {
    compare(&Headers {
        library: "rdmacm",
        names: &["rdma/rdma_cma.h", "rdma/rdma_verbs.h", "rdma/ib_user_sa.h"],
        structs: cma::LAYOUTS.iter().chain(VERBS.into_iter().flatten()).collect(),
        floor: 550,
    });
}

//! Every size and offset of the structs, compared with Debian's headers by the C compiler.

use super::{Layout, cma, verbs};
use std::fmt::Write;
use std::process::Command;

fn layouts() -> impl Iterator<Item = &'static Layout> {
    [cma::LAYOUTS, verbs::LAYOUTS].into_iter().flatten()
}

/// Structs that end with more fields than this library knows: programs never hand them over by value.
const BEGINNINGS: [&str; 3] = ["struct ibv_cq", "struct ibv_srq", "struct ibv_qp"];

/// Lines of names and numbers, by `line` for each.
fn lines(mut line: impl FnMut(&mut String, &str, usize)) -> String {
    let mut text = String::new();
    for Layout { name, size, fields } in layouts() {
        if !BEGINNINGS.contains(name) {
            line(&mut text, name, *size);
        }
        for (field, offset) in fields.iter().filter(|(field, _)| !field.starts_with('_')) {
            line(&mut text, &format!("{name}.{field}"), *offset);
        }
    }
    text
}

/// A C program that prints a line for each size and offset.
fn program() -> String {
    let body = lines(|text, name, _| {
        let value = match name.split_once('.') {
            Some((of, field)) => format!("offsetof({of}, {field})"),
            None => format!("sizeof({name})"),
        };
        writeln!(text, "printf(\"{name} %zu\\n\", {value});").unwrap();
    });
    let headers = ["rdma/rdma_cma.h", "rdma/rdma_verbs.h", "stddef.h", "stdio.h"];
    let includes: String = headers.iter().map(|header| format!("#include <{header}>\n")).collect();
    format!("{includes}int main(void) {{\n{body}return 0;\n}}\n")
}

#[test]
fn every_size_and_offset_is_that_of_debians_headers() {
    let folder = std::env::temp_dir().join(format!("remora-rdmacm-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program()).unwrap();
    // The headers have functions of librdmacm, which nobody calls here.
    let flags = ["-O1", "-ffunction-sections", "-Wl,--gc-sections", "-libverbs", "-lrdmacm"];
    let compiled = Command::new("cc").arg("-o").arg(&binary).arg(&source).args(flags).output().unwrap();
    assert!(
        compiled.status.success(),
        "librdmacm-dev is needed (`scripts/setup dropin` installs it): {}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let printed = Command::new(&binary).output().unwrap();
    let theirs = String::from_utf8(printed.stdout).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let ours = lines(|text, name, number| writeln!(text, "{name} {number}").unwrap());
    assert!(ours.lines().count() > 200, "{}", ours.lines().count());
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs, "ours and Debian's");
    }
    assert_eq!(ours, theirs);
}

//! Every size and offset of the public structs, compared with Debian's headers by the C compiler.

use super::{Layout, completion, context, device, memory, objects, queue_pair, receive, work};
use std::fmt::Write;
use std::process::Command;

fn layouts() -> impl Iterator<Item = &'static Layout> {
    let files = [
        completion::LAYOUTS,
        context::LAYOUTS,
        device::LAYOUTS,
        memory::LAYOUTS,
        objects::LAYOUTS,
        queue_pair::LAYOUTS,
        receive::LAYOUTS,
        work::LAYOUTS,
    ];
    files.into_iter().flatten()
}

/// A C program that prints a line for each size and offset.
fn program() -> String {
    let mut text = String::from(
        "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n",
    );
    for Layout { name, fields, .. } in layouts() {
        writeln!(text, "printf(\"{name} %zu\\n\", sizeof({name}));").unwrap();
        for (field, _) in *fields {
            let field = field.trim_start_matches("r#");
            writeln!(text, "printf(\"{name}.{field} %zu\\n\", offsetof({name}, {field}));").unwrap();
        }
    }
    text + "return 0;\n}\n"
}

fn ours() -> String {
    let mut text = String::new();
    for Layout { name, size, fields } in layouts() {
        writeln!(text, "{name} {size}").unwrap();
        for (field, offset) in *fields {
            writeln!(text, "{name}.{} {offset}", field.trim_start_matches("r#")).unwrap();
        }
    }
    text
}

#[test]
fn every_size_and_offset_is_that_of_debians_headers() {
    let folder = std::env::temp_dir().join(format!("remora-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program()).unwrap();
    let compiled = Command::new("cc").arg("-o").arg(&binary).arg(&source).output().unwrap();
    assert!(
        compiled.status.success(),
        "libibverbs-dev is needed (`scripts/setup test` installs it): {}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let printed = Command::new(&binary).output().unwrap();
    let theirs = String::from_utf8(printed.stdout).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let (ours, lines) = (ours(), theirs.lines().count());
    assert!(lines > 300, "{lines} lines");
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs, "ours and Debian's");
    }
    assert_eq!(ours, theirs);
}

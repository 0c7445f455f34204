//! Tests of the structures in the C headers: C and C++ compilers must give them the sizes and offsets of the
//! Rust structures.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use crate::device::{DeviceAttr, Wc};
use crate::free_list::Facts;
use crate::prism::{Atomic, CSge, Wr};
use crate::queue_pair::QpAttr;
use crate::rma::portal::{RmaWc, RmaWr};
use crate::rma::{GrantBytes, Identity, RmaAttr};
use crate::strom::CAnswer;

/// C statements that print sizes and offsets, and the lines that they must print.
#[derive(Default)]
struct Layout {
    code: String,
    lines: String,
}

macro_rules! structure {
    ($layout:ident, $name:literal, $type:ty, $($field:ident),*) => {
        writeln!($layout.code, "printf(\"%zu\\n\", sizeof(struct {}));", $name).unwrap();
        writeln!($layout.lines, "{}", size_of::<$type>()).unwrap();
        $(
            let field = stringify!($field);
            writeln!($layout.code, "printf(\"%zu\\n\", offsetof(struct {}, {field}));", $name).unwrap();
            writeln!($layout.lines, "{}", offset_of!($type, $field)).unwrap();
        )*
    };
}

fn layout() -> Layout {
    let mut layout = Layout::default();
    structure!(layout, "remora_device_attr", DeviceAttr, port, dedicated, address, interface, capture);
    structure!(layout, "remora_wc", Wc, wr_id, status, opcode, byte_len, qp_num, outcome, vendor_err);
    structure!(layout, "remora_free_list_facts", Facts, capacity, free, resting, reserved, bad_posts);
    structure!(layout, "remora_sge", CSge, addr, length, lkey);
    structure!(
        layout,
        "remora_qp_attr",
        QpAttr,
        max_send_wr,
        max_send_sge,
        max_inline,
        path_mtu,
        access,
        flags,
        connect_timeout_ms,
        private_len,
        private_data,
        max_rd_atomic,
        max_dest_rd_atomic,
        timeout,
        retry_cnt,
        max_recv_wr
    );
    structure!(layout, "remora_answer", CAnswer, tag, status, length);
    structure!(layout, "remora_prism_atomic", Atomic, mode, size, compare_mask, swap_mask, compare, swap_add);
    structure!(
        layout,
        "remora_prism_wr",
        Wr,
        wr_id,
        next,
        sg_list,
        num_sge,
        opcode,
        send_flags,
        prism_flags,
        remote_addr,
        rkey,
        length,
        redirect_addr,
        source_addr,
        result,
        atomic
    );
    rma(&mut layout);
    layout
}

fn rma(layout: &mut Layout) {
    structure!(
        layout,
        "remora_rma_attr",
        RmaAttr,
        regions,
        keys,
        slots,
        served,
        window,
        dispatch_timeout_us,
        timeout_us
    );
    structure!(layout, "remora_rma_identity", Identity, address, pid, incarnation);
    structure!(layout, "remora_rma_grant", GrantBytes, bytes);
    structure!(
        layout,
        "remora_rma_wr",
        RmaWr,
        wr_id,
        local,
        local_offset,
        grant,
        remote_offset,
        length,
        opcode,
        bulk,
        timeout_ms
    );
    structure!(layout, "remora_rma_wc", RmaWc, wr_id, status, reserved);
}

#[test]
fn the_headers_are_c11_and_cpp17_and_their_structures_are_those_of_the_library() {
    let layout = layout();
    let headers = "#include <remora/rma.h>\n#include <remora/strom.h>\n#include <stdio.h>\n";
    let text = format!("{headers}int main(void) {{\n{}}}\n", layout.code);
    let folder = tempfile::tempdir().expect("a folder").keep();
    std::fs::create_dir_all(&folder).unwrap();
    for (compiler, standard, ending) in [("cc", "-std=c11", "c"), ("c++", "-std=c++17", "cc")] {
        let (source, program) =
            (folder.join(format!("layout.{ending}")), folder.join(ending).with_extension("out"));
        std::fs::write(&source, &text).unwrap();
        let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
        let done = Command::new(compiler)
            .args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", include, "-o"])
            .args([&program, &source])
            .output()
            .unwrap_or_else(|error| panic!("this test needs {compiler} (`make setup`): {error}"));
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let printed = Command::new(&program).output().unwrap();
        assert_eq!(String::from_utf8(printed.stdout).unwrap(), layout.lines, "{compiler}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

//! A kernel that refuses trains of datagrams (`UDP_SEGMENT`) makes a connection slower and has no other
//! effect. This test binary runs itself under a preloaded library that refuses them, the one of the port's
//! own tests.

use remora_verbs::{Access, Device, EMPTY, QpOptions, QueuePair, Status, work};
use std::path::Path;
use std::process::Command;

const LEN: usize = 4 << 20;

#[test]
fn a_write_arrives_though_every_train_is_refused() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../system/port/tests/shim/refuse.c");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("refuse{}.so", std::process::id()));
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
    assert!(built.expect("a C compiler, which `make setup` installs").success());
    for errno in [libc::EINVAL, libc::EIO, libc::EOPNOTSUPP, libc::EMSGSIZE] {
        let mut child = crate::own::test(module_path!(), "in_the_child_a_write_arrives");
        child.env("LD_PRELOAD", &library).env("REMORA_REFUSE", "cut").env("REMORA_ERRNO", errno.to_string());
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "errno {errno}:\n{text}");
    }
    let _ = std::fs::remove_file(library);
}

#[test]
#[ignore = "the entry point of a process that another test starts"]
fn in_the_child_a_write_arrives() {
    let device = Device::udp("127.0.0.1:0").unwrap();
    let near = device.open().unwrap();
    let far = device.open().unwrap();
    let near_domain = near.alloc_pd().unwrap();
    let far_domain = far.alloc_pd().unwrap();
    let source = near_domain.allocate(LEN, Access::LOCAL_WRITE).unwrap();
    let target = far_domain.allocate(LEN, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let mut cq = near.create_cq(16).unwrap();
    let far_cq = far.create_cq(16).unwrap();
    let one = near_domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
    let two = far_domain.create_qp(&far_cq, &far_cq, &QpOptions::default()).unwrap();
    let (mut one, _two) = QueuePair::connect_pair(one, two).unwrap();
    let pattern: Vec<u8> =
        (0..LEN as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    source.write(0, &pattern).unwrap();
    one.post_send(&work::write(1, &[source.sge(0, LEN)], target.remote(0))).unwrap();
    let mut done = [EMPTY; 1];
    while cq.poll(&mut done).unwrap() == 0 {}
    assert_eq!(done[0].status, Status::Success);
    let mut there = vec![0; LEN];
    target.read(0, &mut there).unwrap();
    assert!(there == pattern, "all bytes");
    let port = near.port_counters();
    assert_eq!((port.os_errors, port.send_dropped), (1, 0), "the refusal is counted, and nothing is lost");
}

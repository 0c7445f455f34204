//! `remora replay`: what it prints, and its exit codes.

use remora_verbs::{Device, EMPTY, QpOptions, QueuePair, work};

use crate::running::{Scratch, remora};

/// Records a NIC that sends one NOP, and returns the bytes of the recording.
fn recording() -> Vec<u8> {
    let file = Scratch::new(b"");
    let context = Device::shm().record(file.path()).open().expect("a NIC");
    let domain = context.alloc_pd().expect("a domain");
    let mut cq = context.create_cq(8).expect("a queue");
    let pair = || domain.create_qp(&cq, &cq, &QpOptions::default()).expect("a queue pair");
    let (mut one, _other) = QueuePair::connect_pair(pair(), pair()).expect("a connection");
    one.post_send(&work::nop(7)).expect("space");
    cq.wait(&mut [EMPTY; 1], std::time::Duration::from_secs(60)).expect("a completion");
    drop((one, _other, domain, cq, context));
    std::fs::read(file.path()).expect("a recording")
}

#[test]
fn a_replay_says_what_it_did_and_a_damaged_file_is_told_in_one_line() {
    let bytes = recording();
    let file = Scratch::new(&bytes);
    let text = remora(&["replay", file.path()]).good();
    assert!(text.contains("keys of 1RMA") && text.contains("the NIC was closed"), "{text}");
    assert!(text.contains("1 completions") && text.contains("no difference"), "{text}");

    let last = bytes.len() - 1;
    let changed = [&bytes[..last], &[bytes[last] ^ 1]].concat();
    for (bytes, words) in [
        (&b"[[rule]]"[..], "not a recording"),
        (&bytes[..last], "ends inside event"),
        (&changed, "is wrong"),
        (b"", "not a recording"),
    ] {
        let ended = remora(&["replay", Scratch::new(bytes).path()]);
        assert_eq!((ended.status, ended.err.lines().count()), (2, 1), "{}", ended.err);
        assert!(ended.err.contains(words), "{}", ended.err);
    }
    let ended = remora(&["replay", "/none/such"]);
    assert_eq!((ended.status, ended.err.lines().count()), (2, 1), "{}", ended.err);
}

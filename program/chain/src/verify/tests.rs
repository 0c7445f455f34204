use super::*;
use crate::{assemble, read};

fn found(text: &str) -> Vec<Finding> {
    verify(&assemble(text).unwrap())
}

const DATA: &str = "data d\n x: word 1\n y: word 2\n";

/// Each program is unsafe for one reason, and the verifier reports it with its line.
#[test]
fn unsafe_chains_are_refused_with_their_reason() {
    let cases = [
        ("queue m\n write x -> y+8 8", 5, "behind the region granted"),
        ("queue m\n write x -> y+1 8", 5, "behind the region granted"),
        ("queue m\n write x -> y 65536", 5, "behind the region granted"),
        ("queue m\n add x+4, 1", 5, "multiple of 8"),
        ("queue m\n wait m 1", 5, "1 completions of m, of which there are 0"),
        ("queue m\n nop signaled\n wait m 2\n nop signaled", 6, "2 completions of m, of which there are 1"),
        ("queue p\n receive -> x\nqueue m\n wait p.received 2", 7, "which has 1 receives"),
        ("queue m\n enable q 1\nqueue q\n nop", 5, "q is posted"),
        ("queue m\n enable q 2\nqueue q managed\n nop", 5, "enables 2 slots of q, which has 1"),
        ("queue m\n enable q 1\nqueue q managed\n nop\n nop", 8, "nothing enables q so far"),
        ("queue m\n read x -> t.id\nqueue q\nt: nop", 5, "q, which is posted"),
        (
            "queue m\n read x -> t.id signaled\n enable q 1\nqueue q managed\nt: nop",
            5,
            "no WAIT stands between it and the ENABLE in slot 1",
        ),
        (
            "queue m\n enable q 1\n read x -> t.id signaled\n wait m 1\nqueue q managed\nt: nop",
            6,
            "what slot 0 has enabled before",
        ),
        (
            "queue m\n read x -> t.id signaled\n wait m 1\nqueue q managed enabled 1\nt: nop",
            5,
            "enabled from the start",
        ),
        ("queue m managed enabled 2\nt: nop\n read x -> t.id", 6, "runs once"),
        ("queue p\n receive -> t.header\nqueue q managed enabled 1\nt: nop", 0, "may change the opcode of t"),
        (
            "queue p\n receive -> t.remote\nqueue q managed enabled 1\nt: add x, 1",
            0,
            "the remote of t: where it goes",
        ),
        ("queue p\n receive -> t.keys\nqueue q managed enabled 1\nt: add x, 1", 0, "by which right"),
        ("queue p\n receive -> t.count\nqueue q managed enabled 1\nt: wait q 0", 0, "how far a queue runs"),
        ("queue p\n receive -> x 32", 0, "behind the region granted"),
        ("queue p\n receive -> x 17", 0, "goes 1 bytes behind the region granted"),
        ("queue p\n receive -> t.flags\nqueue q managed enabled 1\nt: nop", 0, "the flags of t: whether"),
        (
            "queue p\n receive -> t.local\nqueue q managed enabled 1\nt: write x -> y",
            0,
            "the local of t: where",
        ),
        (
            "queue p\n receive -> t.length\nqueue q managed enabled 1\nt: write x -> y",
            0,
            "the length of t: how",
        ),
        (
            "queue p\n receive -> t.count\nqueue q managed enabled 1\nt: enable q 1",
            0,
            "the count of t: how far",
        ),
        ("queue m\n read x -> y 8, x 8, y+8 8", 5, "behind the region granted"),
        ("queue m\n write x 8, y 8 -> y", 5, "16 bytes from 8 on end"),
        ("queue m\n read x -> y 8, t.id 6\n enable q 1\nqueue q managed\nt: nop", 5, "and no fence"),
        ("queue m\n write x -> t.id 6\n enable q 1 fence\nqueue q managed\nt: nop", 5, "no WAIT stands"),
        ("queue p\n receive -> t.remote\nqueue q managed enabled 1\nt: read x -> y", 0, "where it goes"),
    ];
    for (text, line, description) in cases {
        let findings = found(&format!("{DATA}{text}"));
        let faults: Vec<_> = findings.iter().filter(|finding| finding.severity == Severity::Fault).collect();
        assert!(
            faults.iter().any(|finding| finding.line == line && finding.what.contains(description)),
            "{text}: {findings:?}"
        );
    }
}

#[test]
fn the_programs_that_ship_are_sound() {
    let all = [
        include_str!("../../programs/if.chain"),
        include_str!("../../programs/count.chain"),
        include_str!("../../programs/while.chain"),
        include_str!("../../programs/ask.chain"),
        include_str!("../../programs/rule110.chain"),
        include_str!("../../programs/beaver.chain"),
        include_str!("../../programs/brainfuck.chain"),
    ];
    for text in all {
        assert_eq!(verify(&read(text).unwrap()), [], "{}", text.lines().next().unwrap());
    }
}

/// Clients of these offloads may choose the address that is read and the key that is compared.
#[test]
fn the_offloads_that_ship_are_sound() {
    for (name, text) in crate::offload::OFFLOADS {
        let findings = verify(&read(text).unwrap());
        assert!(findings.iter().all(|finding| finding.severity == Severity::Notice), "{name}: {findings:?}");
        let names_region = |finding: &Finding| finding.what.contains("within the region");
        assert!(!findings.is_empty() && findings.iter().all(names_region), "{name}: {findings:?}");
    }
}

#[test]
fn an_address_that_a_client_says_is_a_notice() {
    let text = "queue p\n receive -> x\nqueue m\n read x -> t.local signaled\n wait m 1\n enable q 1\nqueue q managed\nt: write x -> y";
    let findings = found(&format!("{DATA}{text}"));
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!((findings[0].severity, findings[0].line), (Severity::Notice, 7));
    assert!(findings[0].what.contains("a client says the local"), "{findings:?}");
}

use super::*;

const SAMPLE: &str = r#"
[[rule]]
fault = "drop"
probability = 0.05

[[rule]]
fault = "delay"
delay_us = 300
every = 100
direction = "out"
opcodes = ["rc acknowledge", 16]
"#;

/// A frame that begins at the BTH.
fn frame(opcode: Opcode) -> [u8; 16] {
    let mut frame = [0; 16];
    frame[0] = opcode.0;
    frame
}

fn verdicts(rules: Rules, opcode: Opcode, count: usize) -> Vec<Verdict> {
    let mut faults = Faults::new(&rules, 1);
    (0..count).map(|_| faults.judge(Direction::Out, Start::Bth, &frame(opcode))).collect()
}

#[test]
fn a_rule_file_is_read_and_written() {
    let rules = Rules::from_toml(SAMPLE).unwrap();
    assert_eq!(rules.rules[0], Rule::chance(Fault::Drop, 0.05));
    let second = &rules.rules[1];
    assert_eq!(
        (second.delay_us, second.every, second.direction),
        (Some(300), Some(100), Some(Direction::Out))
    );
    assert_eq!(second.opcodes[0].opcode(), Some(Opcode::RC_ACKNOWLEDGE));
    assert_eq!(second.opcodes[1].opcode(), Some(Opcode::RC_RDMA_READ_RESPONSE_ONLY));
    assert_eq!(Rules::from_toml(&toml::to_string(&rules).unwrap()).unwrap(), rules);
}

#[test]
fn a_wrong_rule_file_is_refused_in_words() {
    let refused = |text: &str| Rules::from_toml(text).unwrap_err();
    assert!(matches!(refused("[[rule]]\nfault = \"burn\""), RulesError::Syntax(_)));
    assert!(matches!(refused("[[rule]]\nfault = \"drop\"\nprobabilty = 1"), RulesError::Syntax(_)));
    let unknown = refused("[[rule]]\nfault = \"drop\"\nopcodes = [\"RC SENT\"]");
    assert_eq!(unknown, RulesError::UnknownOpcode("RC SENT".into()));
    assert!(unknown.to_string().contains("RC SEND Only"));
    assert_eq!(refused("[[rule]]\nfault = \"drop\"\nprobability = 1.5"), RulesError::Probability);
    assert_eq!(refused("[[rule]]\nfault = \"drop\"\nevery = 0"), RulesError::Never);
    assert_eq!(refused("[[rule]]\nfault = \"delay\""), RulesError::NoDelay);
}

#[test]
fn every_nth_frame_of_the_named_op_code_and_direction() {
    let rule = Rule::every(Fault::Drop, 3).only(&[Opcode::RC_SEND_ONLY]).towards(Direction::Out);
    let mut faults = Faults::new(&Rules { rules: vec![rule] }, 0);
    let mut lost = |direction, opcode| faults.judge(direction, Start::Bth, &frame(opcode)).lost;
    let sends: Vec<bool> = (0..6).map(|_| lost(Direction::Out, Opcode::RC_SEND_ONLY)).collect();
    assert_eq!(sends, [false, false, true, false, false, true]);
    assert!((0..6).all(|_| !lost(Direction::In, Opcode::RC_SEND_ONLY)));
    assert!((0..6).all(|_| !lost(Direction::Out, Opcode::RC_SEND_FIRST)));
    let counts = *faults.counts();
    assert_eq!((counts.frames, counts.dropped), (18, 2));
}

#[test]
fn each_fault_gives_its_verdict_and_is_counted() {
    let one = |fault, delay_us, by| {
        let rule = Rule { delay_us, by, ..Rule::always(fault) };
        let mut faults = Faults::new(&Rules { rules: vec![rule] }, 5);
        (faults.judge(Direction::In, Start::Bth, &frame(Opcode::RC_SEND_ONLY)), *faults.counts())
    };
    let none = Verdict::default();
    let counted = Counts { frames: 1, ..Counts::default() };
    let expected = Verdict { lost: true, ..none };
    assert_eq!(one(Fault::Drop, None, None), (expected, Counts { dropped: 1, ..counted }));
    let expected = Verdict { twice: true, ..none };
    assert_eq!(one(Fault::Duplicate, None, None), (expected, Counts { duplicated: 1, ..counted }));
    let expected = Verdict { overtaken_by: 4, ..none };
    assert_eq!(one(Fault::Reorder, None, Some(4)), (expected, Counts { reordered: 1, ..counted }));
    let expected = Verdict { late_ns: 7000, ..none };
    assert_eq!(one(Fault::Delay, Some(7), None), (expected, Counts { delayed: 1, ..counted }));
    let (verdict, counts) = one(Fault::Corrupt, None, None);
    assert!(verdict.flip.is_some_and(|bit| bit < 128));
    assert_eq!(counts, Counts { corrupted: 1, ..counted });
}

#[test]
fn one_seed_gives_one_sequence_and_the_rate_that_was_asked_for() {
    let rules = || Rules { rules: vec![Rule::chance(Fault::Drop, 0.1), Rule::chance(Fault::Corrupt, 0.5)] };
    let first = verdicts(rules(), Opcode::RC_SEND_ONLY, 10_000);
    assert_eq!(first, verdicts(rules(), Opcode::RC_SEND_ONLY, 10_000));
    let lost = first.iter().filter(|verdict| verdict.lost).count();
    assert!((900..1100).contains(&lost), "{lost} of 10 000 at 10 %");
    assert!(first.iter().all(|verdict| !verdict.lost || verdict.flip.is_none()), "a lost frame is only lost");
}

#[test]
fn the_op_code_is_found_behind_every_header() {
    let v4 = [&[0x45][..], &[0; 27], &[0x0a]].concat();
    let v6 = [&[0x60][..], &[0; 47], &[0x0b]].concat();
    assert_eq!(opcode(Start::Ip, &v4), Some(Opcode(0x0a)));
    assert_eq!(opcode(Start::Ip, &v6), Some(Opcode(0x0b)));
    assert_eq!(opcode(Start::Ethernet, &[&[0; 14][..], &v4].concat()), Some(Opcode(0x0a)));
    assert_eq!(opcode(Start::Bth, &[0x04]), Some(Opcode(0x04)));
    assert_eq!(opcode(Start::Ip, &v4[..28]), None);
    assert_eq!(opcode(Start::Ip, &[]), None);
}

#[test]
fn turning_a_bit_twice_turns_it_back() {
    let mut bytes = [0u8; 4];
    flip(&mut bytes, 19);
    assert_eq!(bytes, [0, 0, 8, 0]);
    flip(&mut bytes, 19);
    assert_eq!(bytes, [0; 4]);
    flip(&mut bytes, 32);
    assert_eq!(bytes, [0; 4], "beyond the end nothing is turned");
}

//! Tests that the programs in `program/chain/programs` do what their first lines describe.

use remora_chain::{Machine, RunEnd, assemble};

fn machine(text: &str) -> Machine {
    Machine::load(assemble(text).unwrap()).unwrap()
}

#[test]
fn if_answers_for_its_operand_alone() {
    for x in [5, 4, 0, 5 | 1 << 47] {
        let mut machine = machine(include_str!("../programs/if.chain"));
        assert!(machine.set_word("x", x));
        machine.start();
        assert_eq!(machine.run(100), RunEnd::Rest);
        assert_eq!(machine.word("answer"), Some(u64::from(x == 5)));
        assert_eq!((machine.executed(), machine.failures()), (6, vec![]));
    }
}

#[test]
fn count_ends_by_its_break_and_never_without_one() {
    let text = include_str!("../programs/count.chain");
    let mut first = machine(text);
    first.start();
    assert_eq!(first.run(10_000), RunEnd::Rest);
    assert_eq!(first.word("i"), Some(10));
    // The program never ends if its test never succeeds.
    let mut endless = machine(&text.replace("[nop signaled 10]", "[nop signaled 0]"));
    endless.start();
    assert_eq!(endless.run(100_000), RunEnd::Budget);
    assert!((100_000..100_064).contains(&endless.executed()));
    assert_eq!(endless.run(100_000), RunEnd::Budget);
    assert!(endless.word("i").unwrap() > 6000);
}

#[test]
fn while_goes_round_nine_work_requests_at_a_time_until_its_number_is_there() {
    let text = include_str!("../programs/while.chain");
    for limit in [1, 2, 1000] {
        let mut machine = machine(&text.replace("1000", &limit.to_string()));
        let before = machine.word("i").unwrap();
        machine.start();
        assert_eq!(machine.run(100_000), RunEnd::Rest);
        assert_eq!((machine.word("i").unwrap() - before) >> 16, limit);
        assert_eq!((machine.executed(), machine.failures()), (9 * limit, vec![]));
    }
    // A WAIT for a completion that never occurs never ends.
    let mut endless = machine(&text.replace("[enable 1000]", "[enable 0]"));
    endless.start();
    assert_eq!(endless.run(90_000), RunEnd::Budget);
}

#[test]
fn ask_answers_a_client_that_holds_no_key() {
    let mut machine = machine(include_str!("../programs/ask.chain"));
    machine.start();
    assert_eq!(machine.run(100), RunEnd::Rest);
    assert_eq!(machine.word("done"), Some(0), "nobody has asked");
    let message: Vec<u8> = [7_u64, 900].iter().flat_map(|word| word.to_le_bytes()).collect();
    assert!(machine.send(0, &message));
    assert_eq!(machine.run(100), RunEnd::Rest);
    assert_eq!((machine.word("greater"), machine.word("done")), (Some(900), Some(1)));
}

/// Checks that a program does the same step by step as in one run, and that each step reports its changes.
#[test]
fn steps_are_the_run() {
    let text = include_str!("../programs/count.chain");
    let mut whole = machine(text);
    let mut stepped = machine(text);
    whole.start();
    stepped.start();
    whole.run(10_000);
    let mut steps = Vec::new();
    while let Some(step) = stepped.step() {
        for change in &step.changes {
            let now = stepped.read(change.at, change.after.len());
            assert_eq!(now.as_ref(), Some(&change.after));
            assert_ne!(now.as_ref(), Some(&change.before));
        }
        assert_eq!(step.number as usize, steps.len());
        steps.push(step);
    }
    assert_eq!(steps.len() as u64, whole.executed());
    assert_eq!(stepped.word("i"), whole.word("i"));
    let changed = |step: &remora_chain::Step| !step.changes.is_empty();
    assert!(changed(&steps[0]), "the first adds");
    assert!(!changed(steps.last().unwrap()), "the last waits no more");
}

#[test]
fn a_failure_names_the_work_request() {
    let mut machine = machine("data d\n x: word 0\nqueue main\n nop\n add x+4, 1\n nop");
    machine.start();
    assert_eq!(machine.run(100), RunEnd::Rest);
    let failures = machine.failures();
    assert_eq!(failures.len(), 1);
    assert_eq!((failures[0].queue, failures[0].slot), (0, 1));
    assert_eq!(failures[0].status, remora_nic::Status::RemoteInvalidRequest);
}

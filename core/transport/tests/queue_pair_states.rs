//! Tests of every queue pair state, transition, service and attribute.

use remora_transport::state::{Attributes, ModifyError, Queue, Service, State, modify, rule};

const NAMED: usize = Attributes::NAMED.len();

fn everything() -> Vec<(State, State, Service)> {
    let pairs =
        State::ALL.into_iter().flat_map(|source| State::ALL.into_iter().map(move |target| (source, target)));
    pairs
        .flat_map(|(source, target)| Service::ALL.into_iter().map(move |service| (source, target, service)))
        .collect()
}

#[test]
fn a_transition_takes_its_required_attributes_and_any_of_its_optional_ones() {
    let mut transitions = 0;
    for (source, target, service) in everything() {
        let Some(rule) = rule(source, target, service) else { continue };
        transitions += 1;
        let all = rule.required.and(rule.optional);
        for given in [rule.required, all, all.and(Attributes::STATE)] {
            assert_eq!(
                modify(source, target, service, given),
                Ok(()),
                "{source} {target} {service:?} {given}"
            );
        }
        for (attribute, _) in Attributes::NAMED {
            if rule.optional.contains(*attribute) {
                assert_eq!(modify(source, target, service, rule.required.and(*attribute)), Ok(()));
            }
        }
    }
    // 22 rows with 5 services, of which only two can leave SQE.
    assert_eq!(transitions, 22 * 5 - 3);
}

#[test]
fn each_missing_attribute_and_each_excess_attribute_is_named() {
    for (source, target, service) in everything() {
        let Some(rule) = rule(source, target, service) else { continue };
        for (attribute, name) in Attributes::NAMED {
            if rule.required.contains(*attribute) {
                let given = rule.required.without(*attribute);
                assert_eq!(
                    modify(source, target, service, given),
                    Err(ModifyError::Missing(*attribute)),
                    "{name}"
                );
            } else if !rule.optional.contains(*attribute) && *attribute != Attributes::STATE {
                let given = rule.required.and(*attribute);
                assert_eq!(
                    modify(source, target, service, given),
                    Err(ModifyError::Excess(*attribute)),
                    "{name}"
                );
            }
        }
        let unknown = Attributes(1 << 30);
        assert_eq!(
            modify(source, target, service, rule.required.and(unknown)),
            Err(ModifyError::Excess(unknown))
        );
    }
}

#[test]
fn what_is_not_in_the_table_is_no_transition() {
    let any = Attributes(u32::MAX);
    for (source, target, service) in everything() {
        if rule(source, target, service).is_some() {
            continue;
        }
        let expected = match (source, target) {
            (State::Sqe, State::Rts) => ModifyError::NotThisService(source, target, service),
            _ => ModifyError::NoTransition(source, target),
        };
        assert_eq!(modify(source, target, service, any), Err(expected));
    }
    // No step can be skipped on the way to RTS, and ERR can be left only through RESET.
    for (source, target) in [(State::Reset, State::Rtr), (State::Init, State::Rts), (State::Err, State::Rts)]
    {
        assert_eq!(modify(source, target, Service::Rc, any), Err(ModifyError::NoTransition(source, target)));
    }
}

/// Visits each pair of a state and the attributes given since RESET once, over all walks of any length.
#[test]
fn every_walk_gives_what_a_queue_needs_before_it_works_and_can_always_begin_again() {
    for service in Service::ALL {
        let required = |source, target| rule(source, target, service).expect("a step on the way up").required;
        let receives = required(State::Reset, State::Init).and(required(State::Init, State::Rtr));
        let sends = receives.and(required(State::Rtr, State::Rts));
        // A transition to SQE is never requested: a running queue pair enters it after an error.
        let mut seen = Vec::new();
        let mut open = vec![(State::Reset, Attributes(0)), (State::Sqe, sends)];
        while let Some((state, given)) = open.pop() {
            if seen.contains(&(state, given)) {
                continue;
            }
            seen.push((state, given));
            if state.receive_queue() == Queue::Works {
                assert!(given.contains(receives), "{service:?} {state}: {given}");
            }
            if state.send_queue() == Queue::Works {
                assert!(given.contains(sends), "{service:?} {state}: {given}");
            }
            assert_eq!(modify(state, State::Reset, service, Attributes(0)), Ok(()), "{service:?} {state}");
            for target in State::ALL {
                if let Some(rule) = rule(state, target, service) {
                    let before = if target == State::Reset { Attributes(0) } else { given };
                    open.push((target, before.and(rule.required)));
                }
            }
        }
        let unseen = State::ALL.iter().find(|state| seen.iter().all(|(seen, _)| seen != *state));
        assert_eq!(unseen, None, "{service:?}");
    }
}

/// The numeric masks that `ibv_rc_pingpong` and `ibv_ud_pingpong` pass, because compiled programs contain
/// them.
#[test]
fn the_masks_of_programs_in_the_field_are_accepted() {
    let rc = [(State::Init, 0x39), (State::Rtr, 0x0012_9181), (State::Rts, 0x0001_2e01)];
    let ud = [(State::Init, 0x71), (State::Rtr, 0x1), (State::Rts, 0x0001_0001)];
    for (service, steps) in [(Service::Rc, rc), (Service::Ud, ud)] {
        let mut state = State::Reset;
        for (next, mask) in steps {
            assert_eq!(modify(state, next, service, Attributes(mask)), Ok(()), "{service:?} {state} {next}");
            state = next;
        }
    }
}

#[test]
fn only_reliable_responders_need_their_two_attributes_and_only_requesters_their_four() {
    let required = |source, target, service| rule(source, target, service).expect("a transition").required;
    for service in Service::ALL {
        let responds = matches!(service, Service::Rc | Service::XrcTarget);
        let rtr = required(State::Init, State::Rtr, service);
        assert_eq!(rtr.contains(Attributes::MAX_DEST_RD_ATOMIC), responds);
        assert_eq!(rtr.contains(Attributes::MIN_RNR_TIMER), responds);
        let requests = matches!(service, Service::Rc | Service::XrcInitiator);
        let rts = required(State::Rtr, State::Rts, service);
        assert_eq!(rts.contains(Attributes::RETRY_CNT), requests);
        assert_eq!(rts.contains(Attributes::MAX_QP_RD_ATOMIC), requests);
        assert!(rts.contains(Attributes::SQ_PSN));
    }
}

#[test]
fn what_each_state_lets_the_queues_do() {
    use Queue::{Flushes, Holds, Refuses, Works};
    let expected = [
        (State::Reset, Refuses, Refuses, false),
        (State::Init, Refuses, Holds, false),
        (State::Rtr, Refuses, Works, true),
        (State::Rts, Works, Works, true),
        (State::Sqd, Holds, Works, true),
        (State::Sqe, Flushes, Works, true),
        (State::Err, Flushes, Flushes, false),
    ];
    for (number, (state, send, receive, hears)) in expected.into_iter().enumerate() {
        assert_eq!(State::from_number(number as u8), Some(state));
        assert_eq!(
            (state.send_queue(), state.receive_queue(), state.hears()),
            (send, receive, hears),
            "{state}"
        );
    }
    assert_eq!(State::from_number(7), None);
}

#[test]
fn errors_say_which_attributes() {
    let missing =
        modify(State::Init, State::Rtr, Service::Uc, Attributes::AV.and(Attributes::RQ_PSN)).unwrap_err();
    assert_eq!(missing.to_string(), "this transition needs PATH_MTU DEST_QPN");
    let excess = modify(State::Rts, State::Rts, Service::Ud, Attributes(1 << 9 | 1 << 31)).unwrap_err();
    assert_eq!(excess.to_string(), "this transition does not take TIMEOUT 0x80000000");
    let none = modify(State::Reset, State::Rts, Service::Rc, Attributes::NONE).unwrap_err();
    assert_eq!(none.to_string(), "a queue pair cannot go from RESET to RTS");
}

/// Checks that the document shows the table. After a change to the table, run `REMORA_BLESS=1 cargo test -p
/// remora-transport` and review the difference.
#[test]
fn the_document_shows_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/queue-pair-states.md");
    let drawn = draw();
    if std::env::var_os("REMORA_BLESS").is_some() {
        std::fs::write(path, &drawn).expect("docs/ is writable");
    }
    let kept = std::fs::read_to_string(path).expect("docs/reference/queue-pair-states.md exists");
    assert!(
        kept == drawn,
        "docs/reference/queue-pair-states.md shows another table: run with REMORA_BLESS=1 and look at the difference"
    );
}

fn draw() -> String {
    let mut text = String::from(
        "# Queue pair states\n\n\
         This page lists the states of a queue pair, the behaviour of its queues in each state, and the attributes of\n\
         each transition. It is drawn from `core/transport/src/state/transitions.rs` by\n\
         `core/transport/tests/queue_pair_states.rs`.\n\n\
         ```mermaid\nstateDiagram-v2\n    [*] --> RESET\n",
    );
    for (source, target) in
        State::ALL.into_iter().flat_map(|source| State::ALL.map(|target| (source, target)))
    {
        let plain = matches!(target, State::Reset | State::Err) || source == target;
        if !plain && Service::ALL.into_iter().any(|service| rule(source, target, service).is_some()) {
            text += &format!("    {source} --> {target}\n");
        }
    }
    text += "    RTS --> SQE: a failed send (not RC, XRC)\n    RTS --> ERR: a failed request\n```\n\n\
             Every state can go to RESET, and every state except RESET to ERR. The attribute `STATE` may always be given.\n\n\
             | queue | meaning |\n|---|---|\n\
             | Refuses | Posting a request is an immediate error. |\n\
             | Holds | Requests may be posted, and are not started. |\n\
             | Works | Posted requests are executed. |\n\
             | Flushes | Posted requests complete at once with the status \"flushed in error\". |\n\n\
             | state | send queue | receive queue | packets |\n|---|---|---|---|\n";
    for state in State::ALL {
        let send = state.send_queue();
        let receive = state.receive_queue();
        let packets = if state.hears() { "accepted" } else { "dropped" };
        text += &format!("| {state} | {send:?} | {receive:?} | {packets} |\n");
    }
    text += "\n| from | to | service | required | optional |\n|---|---|---|---|---|\n";
    for (source, target, service) in everything() {
        let Some(rule) = rule(source, target, service) else { continue };
        if !matches!(target, State::Reset | State::Err) {
            text +=
                &format!("| {source} | {target} | {service:?} | {} | {} |\n", rule.required, rule.optional);
        }
    }
    text
}

#[test]
fn attributes_have_one_bit_and_one_name_each() {
    let mut seen = Attributes::NONE;
    for (attribute, name) in Attributes::NAMED {
        assert_eq!(attribute.0.count_ones(), 1, "{name}");
        assert!(!seen.contains(*attribute), "{name}");
        seen = seen.and(*attribute);
        assert_eq!(attribute.to_string(), *name);
    }
    assert_eq!(NAMED, 22);
}

//! The ends of programs and brokers, and what is left of them.

use remora_broker::client::{self, ClientError};
use remora_broker::{Broker, Options};
use remora_host::packet::FoundBy;
use remora_host::wait_readable;
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

use crate::program::Program;
use crate::{LONG, at, never, until};

/// Regression: a poll that found its queue empty read the flag of a failed NIC afterwards and reported
/// that nothing would come, while flushed completions were in the queue.
#[test]
fn a_broker_that_goes_is_a_fatal_event_for_every_device_and_nobody_waits_for_ever() {
    let address = "127.93.0.1:0";
    let broker = Broker::open(at(address), &Options::default()).unwrap();
    let mut one = Program::start(address);
    let mut other = Program::start(address);
    one.ask(&format!("connect {}", other.listens));
    other.ask(&format!("connect {}", one.listens));
    assert_eq!(other.ask("work 5"), "right");
    one.tell("work 1000000");
    drop(broker);
    let worked = one.hear("work: ");
    // The peer's device may fail first and no longer answer.
    assert!(["WrFlushed", "Failed", "RetryExceeded"].contains(&worked.as_str()), "{worked}");
    for program in [&mut one, &mut other] {
        assert_eq!(program.ask("fatal"), "WrFlushed Err(Failed)");
    }
    let gone = client::open(at(address), &never());
    assert!(matches!(gone, Err(ClientError::None(_))), "{gone:?}");
    // The sockets of the programs form a group without an owner, and a new broker reports that.
    let words = Broker::open(at(address), &Options::default()).unwrap_err().to_string();
    assert!(words.contains("UDP port 4791 on 127.93.0.1 is taken by a program of your own"), "{words}");
    one.end();
    other.end();
    Broker::open(at(address), &Options::default()).unwrap();
}

fn a_child_does_not_hide_its_parents_death(address: &str, discovery: FoundBy) {
    let _broker = Broker::open(at(address), &Options { found: discovery, ..Options::default() }).unwrap();
    let mut program = Program::start(address);
    let child = Pid::from_raw(program.ask("fork").parse().unwrap()).unwrap();
    program.kill();
    until(at(address), |report| report.broker.programs == 0);
    // The child lives and holds all of the descriptors.
    kill_process(child, Signal::KILL).unwrap();
}

#[test]
fn a_child_that_keeps_the_descriptors_does_not_hide_its_parents_death() {
    a_child_does_not_hide_its_parents_death("127.93.0.2:0", FoundBy::Socket);
}

#[test]
fn nor_does_it_where_only_the_number_of_a_process_is_known() {
    a_child_does_not_hide_its_parents_death("127.93.0.3:0", FoundBy::Number);
}

#[test]
fn a_child_opens_a_device_of_its_own_and_its_parent_goes_on() {
    let address = "127.93.0.4:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let mut program = Program::start(address);
    let peer = Program::start(address);
    program.ask(&format!("connect {}", peer.listens));
    assert_eq!(program.ask("fork-device"), "0");
    assert_eq!(program.ask("work 50"), "right");
    let report = until(at(address), |report| report.broker.programs == 2);
    assert_eq!(report.broker.tally.lent, 3);
}

#[test]
fn a_broker_ends_by_itself_after_the_last_program_and_not_before() {
    let address = at("127.93.0.5:0");
    let linger = Some(Duration::from_millis(300));
    let broker = Broker::open(address, &Options { linger, ..Options::default() }).unwrap();
    let ended = || wait_readable(broker.ended(), Some(Duration::ZERO)).unwrap();
    let one = client::open(address, &never()).unwrap();
    let other = client::open(address, &never()).unwrap();
    drop(one);
    until(address, |report| report.broker.programs == 1);
    // After twice the time, the broker is still there for the program that has a range.
    assert!(!wait_readable(broker.ended(), linger.map(|time| time * 2)).unwrap());
    drop(other);
    assert!(wait_readable(broker.ended(), Some(LONG)).unwrap() && ended());
    assert!(matches!(client::report(address, &never()), Err(ClientError::None(_))));
}

/// The number of entries of a folder of this process, such as its descriptors or threads.
fn count(folder: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{folder}")).unwrap().count()
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().matches("remora-page").count()
}

/// The entry point of a process that counts its own resources, so nothing else may run in it.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn counts_its_process() {
    let address = "127.93.0.6:0";
    // The first use of a clock, a lock or a page of marks leaves resources behind, so one broker is opened
    // before counting.
    drop(Broker::open(at("127.93.0.7:0"), &Options::default()).unwrap());
    let before = (count("fd"), count("task"));
    let broker = Broker::open(at(address), &Options::default()).unwrap();
    let mut one = Program::start(address);
    let other = Program::start(address);
    one.ask(&format!("connect {}", other.listens));
    assert_eq!(one.ask("work 20"), "right");
    drop(other);
    until(at(address), |report| report.broker.programs == 1);
    one.end();
    until(at(address), |report| report.broker.programs == 0);
    assert_eq!(mappings(), 0, "pages of programs that are gone");
    drop(broker);
    assert_eq!((count("fd"), count("task")), before);
    for table in ["udp", "unix"] {
        let table = std::fs::read_to_string(format!("/proc/self/net/{table}")).unwrap();
        assert!(!table.contains("06005D7F:12B7") && !table.contains("remora-broker/127.93.0.6"));
    }
    println!("counted");
}

#[test]
fn nothing_is_left_when_a_broker_goes() {
    let mut command = crate::own::test(module_path!(), "counts_its_process");
    let output = command.env("REMORA_TEST_COUNTS", "1").output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && out.contains("counted"),
        "{out}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

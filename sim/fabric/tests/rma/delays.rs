//! The delays that an engine counts are those of its completions, and the window counts as full while an
//! operation waits for it.

use remora_nic::rma::Delays;
use remora_transport::rma::{Settings, Status};
use remora_wire::rma::Kind;

use crate::bed::{Bed, CLIENT, SERVER};

fn delays(bed: &mut Bed) -> Delays {
    let now = bed.world.now();
    bed.world.with_nic(CLIENT, |nic, _| nic.rma_delays(now)).expect("it speaks 1RMA")
}

#[test]
fn delays_are_those_of_the_completions_and_the_window_is_full_while_one_waits() {
    let settings = Settings { window: 4096, ..Settings::paper() };
    let mut bed = Bed::new(&settings);
    for slot in 0..2 {
        let command = bed.command(slot, Kind::Read, 4096, [0, 0]);
        bed.world.issue(&mut bed.portal, &command);
    }
    bed.world.run_for(1000);
    assert_eq!(delays(&mut bed).window_full, 1000, "it is full now");
    let ends = [bed.wait(), bed.wait()];
    let waited = ends[1].issue_delay;
    assert!(ends[0].issue_delay == 0 && waited == ends[0].total_delay, "one after the other: {ends:?}");
    bed.world.run_for(5000);
    let measured = delays(&mut bed);
    assert_eq!((measured.window_full, measured.observed), (waited, bed.world.now().0));
    let sums =
        [waited, ends[0].remote_delay() + ends[1].remote_delay(), ends[0].total_delay + ends[1].total_delay];
    assert_eq!([measured.issue, measured.remote, measured.total].map(|all| all.sum()), sums);
    assert_eq!([measured.issue, measured.remote, measured.total].map(|all| all.count()), [2; 3]);
}

#[test]
fn what_was_never_sent_has_no_remote_delay() {
    let settings = Settings { window: 4096, ..Settings::paper() };
    let mut bed = Bed::new(&settings);
    bed.world.cut(CLIENT, SERVER, true);
    for slot in 0..2 {
        let command = bed.command(slot, Kind::Read, 4096, [0, 0]);
        bed.world.issue(&mut bed.portal, &command);
    }
    let ends = [bed.wait().status, bed.wait().status];
    assert_eq!(ends, [Status::DispatchTimeout, Status::Timeout]);
    let measured = delays(&mut bed);
    assert_eq!((measured.issue.count(), measured.remote.count(), measured.total.count()), (2, 1, 2));
    assert_eq!(measured.window_full, settings.dispatch_timeout, "until the second one left its line");
}

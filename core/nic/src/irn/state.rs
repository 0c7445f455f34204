//! What IRN costs in memory, counted from the structs, beside what the paper counts for a NIC (§6.1): 160
//! bits and five bitmaps a queue pair.

use remora_transport::Parameters;
use remora_transport::rc::{Allowed, irn};
use remora_wire::Psn;

use super::{BoundReceives, Irn};
use crate::context::WqeContext;

/// A queue pair as `ibv_rc_pingpong` and its like make it: 128 work requests each way, 16 READs.
const WORK_REQUESTS: u32 = 128;

#[test]
fn bytes_per_queue_pair_that_irn_adds_over_go_back_n() {
    let (parameters, settings, first) = (Parameters::default(), irn::Settings::default(), Psn::new(0));
    let plain_requester =
        remora_transport::rc::Requester::<WqeContext>::new(first, WORK_REQUESTS, parameters);
    let plain_responder = remora_transport::rc::Responder::new(first, &parameters, Allowed::default());
    let requester = irn::Requester::<WqeContext>::new(first, WORK_REQUESTS, parameters, &settings, 128);
    let responder = irn::Responder::new(first, &parameters, Allowed::default(), &settings, 128);
    let bound = BoundReceives::new(WORK_REQUESTS);

    let [request_sacks, response_tracker, owed_there] = requester.bitmap_bytes();
    let [two_bitmap, response_sacks, owed_here] = responder.bitmap_bytes();
    // The paper's five: SACK bitmaps of requests and responses, the 2-bitmap, the tracking of READ responses.
    let five = request_sacks + response_tracker + two_bitmap + response_sacks;
    assert_eq!(five, 5 * 128 / 8);
    assert_eq!(owed_there + owed_here, 2 * 128 / 8);

    let plain = plain_requester.state_bytes() + plain_responder.state_bytes();
    let ours = requester.state_bytes() + responder.state_bytes();
    let held = size_of::<BoundReceives>() + bound.heap_bytes();
    let owed = owed_there + owed_here;
    let numbered = requester.numbering_bytes();
    let rest = ours - plain - five - owed - numbered;
    println!("bytes per queue pair       go-back-N {plain:>6}   IRN {ours:>6}   added {:>5}", ours - plain);
    println!("  the five bitmaps         {five:>6}   (paper: 80)");
    println!("  bitmaps of NACKs owed    {owed:>6}   (a NIC in hardware answers each arrival at once)");
    println!("  numbers of work requests {numbered:>6}   (paper: 3 bytes each, {})", 3 * WORK_REQUESTS);
    println!("  numbers, flags, timers   {rest:>6}   (paper: 20)");
    println!("premature completions      {held:>6}   (paper: in the host's memory)");
    // As docs/internals/notes/2026-11-loss.md says.
    assert_eq!((ours - plain, held), (ADDED, HELD));
    assert!(size_of::<Irn>() < 4096);
}

/// Bytes that the two machines add, per queue pair.
const ADDED: usize = 3064;
/// Bytes of receive work requests bound ahead of their turn and of what they will say.
const HELD: usize = 9248;

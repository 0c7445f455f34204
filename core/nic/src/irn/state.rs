//! The bitmaps of IRN per queue pair, compared with the paper (§6.1): 160 bits and five bitmaps.

use remora_transport::Parameters;
use remora_transport::rc::{Allowed, irn};
use remora_wire::Psn;

use crate::context::WqeContext;

/// Number of packets that a bitmap of the default settings covers.
const PACKETS: usize = 128;

#[test]
fn a_queue_pair_has_the_papers_five_bitmaps_and_two_for_nacks_that_are_still_to_be_sent() {
    let parameters = Parameters::default();
    let settings = irn::Settings::default();
    let first = Psn::new(0);
    let requester = irn::Requester::<WqeContext>::new(first, 128, parameters, &settings, 128);
    let responder = irn::Responder::new(first, &parameters, Allowed::default(), &settings, 128);
    let [request_sacks, response_tracker, nacks_of_responses] = requester.bitmap_bytes();
    let [two_bitmap, response_sacks, nacks_of_requests] = responder.bitmap_bytes();
    // The SACK bitmaps of requests and responses, the 2-bitmap, and the tracking of READ responses.
    assert_eq!(request_sacks + response_tracker + two_bitmap + response_sacks, 5 * PACKETS / 8);
    // A NIC in hardware answers each arrival at once and needs no bitmap of NACKs.
    assert_eq!(nacks_of_responses + nacks_of_requests, 2 * PACKETS / 8);
}

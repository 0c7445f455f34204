use super::*;
use remora_fault::Random;
use std::collections::BTreeMap;

/// Returns `NACK rcv_nxt SACK MSN completions` for each arrival, given as (op-code, sequence number).
fn answers(arrivals: &[(u8, Seq)]) -> Vec<String> {
    let mut receiver = Receiver::new(0, 128);
    let line = |&(opcode, seq): &(u8, Seq)| {
        let answer = receiver.arrive(seq, Ends::of(Opcode(opcode)));
        let Answer { nack, rcv_nxt, sack, msn, completions } = answer;
        format!("{} {rcv_nxt} {sack} {msn} {completions}", u8::from(nack))
    };
    arrivals.iter().map(line).collect()
}

#[test]
fn arrivals_in_order_are_acknowledged_and_end_their_messages() {
    // SEND First, Middle, Last, Only; WRITE Only, Only with Immediate; READ request; CmpSwap.
    let arrivals = [(0, 0), (1, 1), (2, 2), (4, 3), (10, 4), (11, 5), (12, 6), (19, 7)];
    let expected = [
        "0 1 0 0 0",
        "0 2 1 0 0",
        "0 3 2 1 1",
        "0 4 3 2 1",
        "0 5 4 3 0",
        "0 6 5 4 1",
        "0 7 6 5 0",
        "0 8 7 6 0",
    ];
    assert_eq!(answers(&arrivals), expected);
}

#[test]
fn an_arrival_out_of_order_is_a_nack_and_holds_its_completion_back() {
    let arrivals = [(4, 0), (4, 2), (10, 3), (4, 5), (4, 1), (4, 4)];
    let expected = ["0 1 0 1 1", "1 1 2 1 0", "1 1 3 1 0", "1 1 5 1 0", "0 4 1 4 2", "0 6 4 6 2"];
    assert_eq!(answers(&arrivals), expected);
}

#[test]
fn an_arrival_in_order_is_a_plain_acknowledgement_though_holes_remain() {
    assert_eq!(answers(&[(1, 2), (1, 4), (1, 0)]), ["1 0 2 0 0", "1 0 4 0 0", "0 1 0 0 0"]);
}

#[test]
fn duplicates_change_nothing_behind_and_ahead() {
    let arrivals = [(4, 0), (4, 0), (4, 2), (4, 2), (4, 0)];
    assert_eq!(answers(&arrivals), ["0 1 0 1 1", "0 1 0 1 0", "1 1 2 1 0", "1 1 2 1 0", "0 1 0 1 0"]);
}

#[test]
fn the_last_packet_that_fits_is_remembered_and_the_next_one_is_not() {
    let mut receiver = Receiver::new(1 << 24, 128);
    assert_eq!(receiver.arrival((1 << 24) + 128), Arrival::OutOfReach);
    receiver.arrive((1 << 24) + 128, Ends::Completion);
    receiver.arrive((1 << 24) + 127, Ends::Completion);
    assert_eq!(receiver.arrival((1 << 24) + 127), Arrival::GapDuplicate);
    for seq in 0..127 {
        receiver.arrive((1 << 24) + seq, Ends::Nothing);
    }
    assert_eq!((receiver.rcv_nxt(), receiver.msn(), receiver.has_ahead()), ((1 << 24) + 128, 1, false));
    assert_eq!(receiver.bitmap_bytes(), 32);
}

#[test]
fn the_message_sequence_number_has_24_bits() {
    let mut receiver = Receiver::new(0, 64);
    receiver.msn = 0x00ff_ffff;
    assert_eq!(receiver.arrive(0, Ends::Message).msn, 0);
}

#[test]
fn op_codes_end_what_the_specification_says_they_end() {
    for code in 0..=255 {
        let expected = match code {
            2..=5 | 9 | 11 | 22 | 23 => Ends::Completion,
            8 | 10 | 12 | 19 | 20 | 24 | 27 | 28 => Ends::Message,
            _ => Ends::Nothing,
        };
        assert_eq!(Ends::of(Opcode(code)), expected, "{code}");
    }
}

#[test]
fn random_arrivals_agree_with_a_map() {
    let mut random = Random::new(1);
    for _ in 0..200 {
        let mut receiver = Receiver::new(0, 64);
        let mut map = BTreeMap::new();
        let mut expected = 0;
        let mut msn = 0;
        for _ in 0..500 {
            let seq = (expected + random.below(40)).saturating_sub(random.below(12));
            let ends = [Ends::Nothing, Ends::Message, Ends::Completion][random.below(3) as usize];
            let answer = receiver.arrive(seq, ends);
            let behind = seq < expected;
            let ahead = seq > expected;
            if !behind {
                map.entry(seq).or_insert(ends);
            }
            let mut completions = 0;
            while let Some(ends) = map.remove(&expected) {
                expected += 1;
                msn += u32::from(ends != Ends::Nothing);
                completions += u32::from(ends == Ends::Completion);
            }
            assert_eq!(answer, Answer { nack: ahead, rcv_nxt: expected, sack: seq, msn, completions });
        }
    }
}

#[test]
fn a_tracker_takes_responses_in_any_order() {
    let mut tracker = Tracker::new(10, 64);
    for (seq, arrival, rcv_nxt) in [
        (12, Arrival::Gap, 10),
        (12, Arrival::GapDuplicate, 10),
        (11, Arrival::Gap, 10),
        (10, Arrival::InOrder, 13),
        (10, Arrival::Duplicate, 13),
        (77, Arrival::OutOfReach, 13),
        (76, Arrival::Gap, 13),
        (13, Arrival::InOrder, 14),
    ] {
        assert_eq!(tracker.arrival(seq), arrival, "{seq}");
        if matches!(arrival, Arrival::InOrder | Arrival::Gap) {
            tracker.take(seq);
        }
        assert_eq!(tracker.rcv_nxt(), rcv_nxt, "{seq}");
    }
    assert_eq!(tracker.bitmap_bytes(), 8);
}

#[test]
fn passing_what_is_next_ends_where_marking_and_stepping_do() {
    for (ends, message) in [(Ends::Nothing, false), (Ends::Message, true)] {
        let mut short = Receiver::new(0x00ff_fffe, 64);
        short.msn = 0x00ff_ffff;
        let mut long = short.clone();
        short.pass(message);
        long.mark(long.rcv_nxt(), ends);
        assert_eq!(long.front(), Some(ends));
        long.step();
        assert_eq!(short, long);
    }
}

#[test]
fn numbers_that_will_never_be_used_are_stepped_over() {
    let mut tracker = Tracker::new(10, 64);
    for seq in [10, 12, 15, 16, 20] {
        tracker.take(seq);
    }
    // 12 lies in the skipped range.
    tracker.skip(15);
    assert_eq!(tracker.rcv_nxt(), 17);
    tracker.skip(1000);
    assert_eq!(tracker.rcv_nxt(), 1000);
    assert_eq!(
        [1000, 1063, 1064].map(|seq| tracker.arrival(seq)),
        [Arrival::InOrder, Arrival::Gap, Arrival::OutOfReach]
    );
}

#[test]
#[should_panic(expected = "the window advances over a packet that is there")]
fn the_check_sees_a_window_that_has_not_advanced() {
    let mut receiver = Receiver::new(100, 64);
    receiver.mark(101, Ends::Message);
    receiver.check(false);
    receiver.mark(100, Ends::Message);
    receiver.check(true);
    receiver.check(false);
}

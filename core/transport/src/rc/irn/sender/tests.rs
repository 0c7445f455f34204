use super::*;
use remora_fault::Random;
use std::collections::BTreeSet;

const MANY: Seq = 1 << 40;

/// Returns a sender with the `eager` rule of the authors' own code.
fn sender(cap: u32) -> Sender {
    Sender::new(0, &Settings { eager: true, ..Settings::default() }, cap)
}

/// Uses one opportunity to transmit, and returns the packet that was sent.
fn chance(sender: &mut Sender) -> Option<Seq> {
    let chosen = sender.choose(MANY);
    sender.transmitted(chosen);
    chosen
}

fn chances(sender: &mut Sender, count: usize) -> Vec<Seq> {
    (0..count).filter_map(|_| chance(sender)).collect()
}

#[test]
fn the_cap_holds_new_packets_back_and_an_acknowledgement_lets_them_go() {
    let mut sender = sender(4);
    assert_eq!(chances(&mut sender, 10), [0, 1, 2, 3]);
    assert!(sender.acknowledge(2, None));
    assert_eq!(chances(&mut sender, 10), [4, 5]);
}

#[test]
fn a_nack_begins_a_recovery_that_sends_the_holes_below_the_highest_arrival_once() {
    let mut sender = sender(16);
    assert_eq!(chances(&mut sender, 10).len(), 10);
    // 0, 2 and 5 are lost; 9 is delayed.
    for sack in [1, 3, 4, 6, 7, 8] {
        assert!(!sender.acknowledge(0, Some(sack)));
    }
    assert_eq!(sender.flags(), [true, false, false]);
    assert_eq!(chances(&mut sender, 4), [0, 2, 5, 10]);
    assert!(sender.in_recovery());
    assert_eq!(sender.recover(), 9);
    // A partial acknowledgement: 2 was retransmitted already.
    assert!(sender.acknowledge(2, None));
    assert_eq!(chance(&mut sender), Some(11));
    // 2 and 5 arrive, so everything before 9 is acknowledged.
    assert!(sender.acknowledge(9, None));
    assert!(sender.in_recovery(), "recovery lasts until 9 is acknowledged");
    assert_eq!(chance(&mut sender), Some(9), "a partial acknowledgement marks the oldest packet as lost");
    assert!(sender.acknowledge(12, None));
    assert!(!sender.in_recovery());
}

/// Returns the number of retransmissions in 50 round trips of one packet, after one lost packet and one lost
/// NACK that makes another packet appear lost.
fn needless(eager: bool) -> usize {
    let mut sender = Sender::new(0, &Settings { eager, ..Settings::default() }, 110);
    assert_eq!(chances(&mut sender, 10).len(), 10);
    sender.acknowledge(0, Some(1));
    assert_eq!(chances(&mut sender, 1), [0]);
    sender.acknowledge(0, Some(3));
    assert_eq!(
        chances(&mut sender, 3),
        [10, 2, 11],
        "2 has arrived, but the sender has no acknowledgement of it"
    );
    let mut again = 0;
    for cumulative in 10..60 {
        sender.acknowledge(cumulative, None);
        let high = sender.snd_max();
        again += chances(&mut sender, 2).iter().filter(|seq| **seq < high).count();
    }
    again
}

/// Regression: one lost NACK made a recovery go on for ever, with every second packet retransmitted
/// needlessly.
#[test]
fn a_lost_nack_does_not_make_a_recovery_go_on_for_ever() {
    assert_eq!(needless(false), 0);
    assert!(needless(true) >= 49, "the authors' code retransmits in almost every round trip");
}

#[test]
fn after_silence_the_oldest_packet_counts_as_lost_one_after_the_other() {
    let mut sender = Sender::new(0, &Settings::default(), 110);
    assert_eq!(chances(&mut sender, 8).len(), 8);
    assert_eq!(sender.timeout(false), Timeout::Resend);
    for seq in 0..8 {
        assert_eq!(chance(&mut sender), Some(seq));
        sender.acknowledge(seq + 1, None);
    }
    assert!(!sender.in_recovery());
}

#[test]
fn retransmissions_are_not_capped() {
    let mut sender = sender(4);
    chances(&mut sender, 4);
    sender.acknowledge(0, Some(1));
    sender.acknowledge(0, Some(3));
    assert_eq!(chances(&mut sender, 10), [0, 2]);
}

#[test]
fn a_packet_that_arrives_before_it_is_sent_again_is_not() {
    let mut sender = sender(16);
    chances(&mut sender, 8);
    sender.acknowledge(0, Some(4));
    assert_eq!(chance(&mut sender), Some(0));
    assert_eq!((sender.retransmit(), sender.flags()), (1, [true, true, false]));
    sender.acknowledge(0, Some(1));
    assert_eq!(sender.flags(), [false, true, true]);
    // As on the paper's NIC, the opportunity that searches for the next hole sends a new packet.
    assert_eq!(chances(&mut sender, 3), [8, 2, 3]);
}

#[test]
fn a_timeout_sends_the_oldest_again_and_then_what_is_known_missing() {
    let mut sender = sender(16);
    chances(&mut sender, 6);
    sender.acknowledge(0, Some(2));
    assert_eq!(chances(&mut sender, 2), [0, 1]);
    assert_eq!(sender.timeout(false), Timeout::Resend);
    assert_eq!(chances(&mut sender, 3), [0, 1, 6]);
}

#[test]
fn the_short_timer_counts_only_when_few_packets_are_in_flight() {
    let mut sender = sender(16);
    assert_eq!(sender.timeout(true), Timeout::Idle);
    chances(&mut sender, 3);
    assert_eq!(sender.timeout(true), Timeout::Resend);
    chances(&mut sender, 2);
    assert_eq!(sender.timeout(true), Timeout::Extended);
    assert_eq!(sender.timeout(false), Timeout::Resend);
}

#[test]
fn packets_selectively_acknowledged_may_leave_the_cap() {
    let settings = Settings { sacked_leave: true, ..Settings::default() };
    for (settings, more) in [(Settings::default(), 0), (settings, 2)] {
        let mut sender = Sender::new(0, &settings, 4);
        chances(&mut sender, 4);
        sender.acknowledge(0, Some(1));
        sender.acknowledge(0, Some(2));
        assert_eq!(chance(&mut sender), Some(0));
        assert_eq!(chances(&mut sender, 8).len(), more);
    }
}

#[test]
fn without_sack_state_only_the_oldest_packet_is_sent_again() {
    let settings = Settings { recovery: Recovery::HeadOnly, ..Settings::default() };
    let mut sender = Sender::new(0, &settings, 16);
    chances(&mut sender, 8);
    for sack in [1, 3, 5, 7] {
        sender.acknowledge(0, Some(sack));
    }
    assert_eq!(chances(&mut sender, 2), [0, 8]);
    assert!(sender.acknowledge(2, None));
    assert_eq!(chances(&mut sender, 2), [2, 9]);
}

#[test]
fn with_go_back_n_everything_is_sent_again_once_for_each_gap() {
    let settings = Settings { recovery: Recovery::GoBackN, ..Settings::default() };
    let mut sender = Sender::new(0, &settings, 16);
    chances(&mut sender, 5);
    sender.acknowledge(1, Some(2));
    sender.acknowledge(1, Some(3));
    assert_eq!(chances(&mut sender, 6), [1, 2, 3, 4, 5, 6]);
    assert!(!sender.acknowledge(1, Some(4)));
    assert_eq!(chance(&mut sender), Some(7), "the same gap causes one go-back");
    assert_eq!(sender.timeout(false), Timeout::Resend);
    assert_eq!(chance(&mut sender), Some(1));
    // An acknowledgement arrives while the packets that it covers are being retransmitted.
    assert!(sender.acknowledge(6, None));
    assert_eq!(chance(&mut sender), Some(6));
}

#[test]
fn after_a_rewind_what_has_arrived_is_passed_over() {
    let mut sender = sender(16);
    chances(&mut sender, 8);
    for sack in [2, 3, 5] {
        sender.acknowledge(1, Some(sack));
    }
    sender.rewind();
    assert_eq!(chances(&mut sender, 6), [1, 4, 6, 7, 8, 9]);
}

#[test]
fn acknowledgements_of_what_was_never_sent_are_not_believed() {
    let mut sender = sender(16);
    chances(&mut sender, 3);
    let before = sender.clone();
    assert!(!sender.acknowledge(4, None) && !sender.acknowledge(0, Some(3)));
    assert_eq!(sender, before);
    assert!(sender.acknowledge(3, None));
}

#[test]
fn a_stale_nack_names_packets_before_the_window_and_changes_no_flag() {
    let mut sender = sender(16);
    chances(&mut sender, 6);
    sender.acknowledge(0, Some(5));
    chance(&mut sender);
    sender.acknowledge(3, None);
    let before = sender.clone();
    assert!(!sender.acknowledge(0, Some(1)));
    assert_eq!(sender, before);
}

/// Connects sender and receiver by a link that loses, duplicates and reorders packets, and checks that
/// everything arrives and the invariants hold.
#[test]
fn random_losses_end_and_the_rules_hold() {
    for (seed, recovery) in (0..300).zip([Recovery::Selective, Recovery::HeadOnly].into_iter().cycle()) {
        let mut random = Random::new(seed);
        let cap = 1 + random.below(64) as u32;
        let sacked_leave = random.chance(1.0 / 2.0);
        let eager = random.chance(1.0 / 2.0);
        let settings = Settings { recovery, sacked_leave, eager, cap, ..Settings::default() };
        let (mut sender, mut receiver) =
            (Sender::new(0, &settings, cap), crate::rc::irn::Receiver::new(0, 128));
        let total = 300;
        let mut there: Vec<Seq> = Vec::new();
        let mut back: Vec<(Seq, Option<Seq>)> = Vec::new();
        let mut known = BTreeSet::new();
        let mut rounds = 0;
        while sender.snd_una() < total {
            rounds += 1;
            assert!(rounds < 200_000, "seed {seed}: no progress: {sender:?}");
            let chosen = sender.choose(total);
            if let Some(seq) = chosen {
                assert!(
                    !known.contains(&seq) || seq == sender.snd_una(),
                    "seed {seed}: {seq} was retransmitted after its acknowledgement"
                );
                if seq >= sender.snd_max() {
                    assert!(sender.in_flight() < u64::from(cap), "seed {seed}: packets in flight <= cap");
                }
                if !random.chance(1.0 / 10.0) {
                    there.push(seq);
                }
            }
            if sender.in_turn() {
                let next = Some(sender.snd_nxt()).filter(|next| *next < total && sender.has_window());
                assert_eq!(chosen, next, "seed {seed}: in order, only the window limits the next packet");
            }
            let mut long_way = sender.clone();
            long_way.transmitted_out_of_turn(chosen);
            sender.transmitted(chosen);
            assert_eq!(sender, long_way, "seed {seed}: the fast path of `transmitted` equals the slow one");
            if !there.is_empty() && random.chance(2.0 / 3.0) {
                let index =
                    if random.chance(1.0 / 5.0) { random.below(there.len() as u64) as usize } else { 0 };
                let seq = if random.chance(1.0 / 20.0) { there[index] } else { there.remove(index) };
                let answer = receiver.arrive(seq, crate::rc::irn::Ends::Nothing);
                if !random.chance(1.0 / 10.0) {
                    back.push((answer.rcv_nxt, answer.nack.then_some(seq)));
                }
            }
            if !back.is_empty() && random.chance(2.0 / 3.0) {
                let (cumulative, sack) = back.remove(0);
                let mut long_way = sender.clone();
                let advanced = long_way.acknowledge_disturbed(cumulative, sack);
                assert_eq!(sender.acknowledge(cumulative, sack), advanced);
                assert_eq!(
                    sender, long_way,
                    "seed {seed}: the fast path of `acknowledge` equals the slow one"
                );
                known.extend(sack.filter(|_| recovery == Recovery::Selective));
            }
            if chosen.is_none() && there.is_empty() && back.is_empty() {
                sender.timeout(false);
            }
        }
        assert_eq!((receiver.rcv_nxt(), sender.is_sacked(0)), (total, false));
    }
}

#[test]
fn a_nack_that_names_the_missing_packet_itself_sends_everything_behind_it_again_once() {
    let mut sender = Sender::new(0, &Settings::default(), 110);
    assert_eq!(chances(&mut sender, 6).len(), 6);
    // 1 is lost, 3 arrived, and the receiver dropped the other packets.
    sender.acknowledge(1, Some(3));
    sender.acknowledge(1, Some(1));
    assert_eq!(chances(&mut sender, 5), [1, 2, 4, 5, 6]);
    sender.acknowledge(1, Some(1));
    assert_eq!(chances(&mut sender, 1), [7], "the second NACK retransmits nothing again");
    // 1 is lost once more.
    assert_eq!(sender.timeout(false), Timeout::Resend);
    assert_eq!(chances(&mut sender, 7), [1, 2, 4, 5, 6, 7, 8]);
    assert!(sender.acknowledge(4, None));
    sender.acknowledge(2, Some(2));
    assert_eq!(chances(&mut sender, 1), [9], "an old NACK has no effect");
}

//! Exhaustive exploration of IRN's sender and receiver: every order in which a few packets and
//! acknowledgements can be lost, duplicated, reordered and timed out. A finite flow over a link that holds a
//! set of packets and a few acknowledgements has finitely many states, and each is visited once.
//!
//! In each state the test checks that the sender considers only received packets as acknowledged, that
//! completions occur once each and in order, and that the cap holds. From each state, a run without further
//! loss must end, so progress resumes once the link delivers.

use remora_transport::rc::Seq;
use remora_transport::rc::irn::{Arrival, Ends, Receiver, Recovery, Sender, Settings, Timeout};
use std::collections::{BTreeSet, HashSet};

/// The `Ends` of each packet in the flow: a SEND of two packets, a WRITE, a SEND, and another SEND.
const FLOW: [Ends; 5] = [Ends::Nothing, Ends::Completion, Ends::Message, Ends::Completion, Ends::Completion];

/// Maximum number of acknowledgements in flight; further ones are lost.
const ANSWERS: usize = 3;

/// Cumulative acknowledgement, and the packet that a NACK names.
type Answer = (Seq, Option<Seq>);

#[derive(Clone, PartialEq, Eq, Hash)]
struct Pair {
    sender: Sender,
    receiver: Receiver,
    /// Number of completions so far.
    completed: u32,
    packets: BTreeSet<Seq>,
    answers: BTreeSet<Answer>,
}

struct Flow {
    packets: u64,
    cap: u64,
    keeps: bool,
    sacked_leave: bool,
}

impl Flow {
    fn transmit(&self, pair: &mut Pair) -> bool {
        let chosen = pair.sender.choose(self.packets);
        if chosen.is_none() && !pair.sender.must_look() {
            return false;
        }
        let high = pair.sender.snd_max();
        let una = pair.sender.snd_una();
        let counted = (una..high).filter(|seq| !(self.sacked_leave && pair.sender.is_sacked(*seq))).count();
        pair.sender.transmitted(chosen);
        if let Some(seq) = chosen {
            assert!(seq < self.packets && seq >= una && seq <= high);
            assert!(seq < high || (counted as u64) < self.cap, "the cap limits new packets");
            pair.packets.insert(seq);
        }
        true
    }

    fn arrive(&self, pair: &mut Pair, seq: Seq) {
        let before = pair.receiver.rcv_nxt();
        let answer = if pair.receiver.arrival(seq) == Arrival::Gap && !self.keeps {
            (before, Some(seq))
        } else {
            let answer = pair.receiver.arrive(seq, FLOW[seq as usize]);
            pair.completed += answer.completions;
            (answer.rcv_nxt, answer.nack.then_some(seq))
        };
        assert!(answer.0 >= before, "the cumulative acknowledgement never decreases");
        if pair.answers.len() < ANSWERS {
            pair.answers.insert(answer);
        }
    }

    /// Returns all possible next states.
    fn next(&self, pair: &Pair) -> Vec<Pair> {
        let mut all = Vec::new();
        let mut and = |change: &dyn Fn(&mut Pair) -> bool| {
            let mut after = pair.clone();
            if change(&mut after) {
                all.push(after);
            }
        };
        and(&|pair| self.transmit(pair));
        for short in [false, true] {
            and(&|pair| pair.sender.timeout(short) == Timeout::Resend);
        }
        for &seq in &pair.packets {
            and(&|pair| pair.packets.remove(&seq));
            for kept in [false, true] {
                and(&|pair| {
                    self.arrive(pair, seq);
                    kept || pair.packets.remove(&seq)
                });
            }
        }
        for &(cumulative, sack) in &pair.answers {
            and(&|pair| pair.answers.remove(&(cumulative, sack)));
            for kept in [false, true] {
                and(&|pair| {
                    pair.sender.acknowledge(cumulative, sack);
                    kept || pair.answers.remove(&(cumulative, sack))
                });
            }
        }
        all
    }

    fn check(&self, pair: &Pair) {
        let sender = &pair.sender;
        let receiver = &pair.receiver;
        assert!(sender.snd_una() <= receiver.rcv_nxt(), "acknowledged packets have arrived");
        assert!(sender.snd_una() <= sender.snd_nxt() && sender.snd_nxt() <= sender.snd_max());
        assert!((sender.snd_una()..sender.snd_max()).all(|seq| {
            !sender.is_sacked(seq)
                || seq < receiver.rcv_nxt()
                || receiver.arrival(seq) == Arrival::GapDuplicate
        }));
        let in_order = &FLOW[..receiver.rcv_nxt() as usize];
        let ended = |kinds: &[Ends]| in_order.iter().filter(|ends| kinds.contains(ends)).count() as u32;
        assert_eq!(pair.completed, ended(&[Ends::Completion]), "each operation completes once, in order");
        assert_eq!(receiver.msn(), ended(&[Ends::Completion, Ends::Message]));
    }

    fn is_done(&self, pair: &Pair) -> bool {
        pair.sender.snd_una() == self.packets
    }

    /// Returns true if the flow ends without further loss, when the timer expires only if nothing else can
    /// happen.
    fn finishes(&self, mut pair: Pair) -> bool {
        for _ in 0..8 * self.packets {
            if self.is_done(&pair) {
                return pair.receiver.rcv_nxt() == self.packets;
            }
            let mut moved = false;
            while self.transmit(&mut pair) {
                moved = true;
            }
            while let Some(seq) = pair.packets.pop_first() {
                moved = true;
                self.arrive(&mut pair, seq);
                while let Some((cumulative, sack)) = pair.answers.pop_first() {
                    pair.sender.acknowledge(cumulative, sack);
                }
            }
            while let Some((cumulative, sack)) = pair.answers.pop_first() {
                moved = true;
                pair.sender.acknowledge(cumulative, sack);
            }
            if !moved && pair.sender.timeout(false) != Timeout::Resend {
                return false;
            }
        }
        false
    }
}

/// Visits every state and returns their number.
fn explore(settings: &Settings, packets: u64, cap: u32) -> usize {
    let flow = Flow {
        packets,
        cap: u64::from(cap),
        keeps: settings.recovery != Recovery::GoBackN,
        sacked_leave: settings.sacked_leave,
    };
    let start = Pair {
        sender: Sender::new(0, settings, cap),
        receiver: Receiver::new(0, settings.bitmap),
        completed: 0,
        packets: BTreeSet::new(),
        answers: BTreeSet::new(),
    };
    let mut seen = HashSet::from([start.clone()]);
    let mut open = vec![start];
    let mut done = 0;
    while let Some(pair) = open.pop() {
        flow.check(&pair);
        done += usize::from(flow.is_done(&pair));
        assert!(flow.finishes(pair.clone()), "a run without loss does not end");
        for after in flow.next(&pair) {
            if !seen.contains(&after) {
                seen.insert(after.clone());
                open.push(after);
            }
        }
    }
    assert!(done > 0);
    println!(
        "{:?}, {packets} packets, cap {cap}: {} states, {done} of them at the end",
        settings.recovery,
        seen.len()
    );
    seen.len()
}

/// Returns packets and cap of each search: that of four packets only with `REMORA_WHOLE` (`make nightly`
/// sets it).
fn sizes() -> &'static [(u64, u32)] {
    if std::env::var_os("REMORA_WHOLE").is_some() { &[(3, 3), (4, 2)] } else { &[(3, 3)] }
}

#[test]
fn every_history_of_a_sender_and_a_receiver_ends_with_everything_once_and_in_order() {
    for recovery in [Recovery::Selective, Recovery::HeadOnly, Recovery::GoBackN] {
        for &(packets, cap) in sizes() {
            let states = explore(&Settings { recovery, ..Settings::default() }, packets, cap);
            assert!(states > 1_000, "{states} states: the link does not lose, duplicate or reorder packets");
        }
    }
}

#[test]
fn the_same_when_packets_that_arrived_leave_the_cap_or_the_oldest_is_sent_again_whatever_arrived() {
    for &(packets, cap) in sizes() {
        explore(&Settings { sacked_leave: true, ..Settings::default() }, packets, cap);
        explore(&Settings { eager: true, ..Settings::default() }, packets, cap);
    }
}

//! Loses each message of a connection's life, once and several times, and duplicates it: the connection
//! must be established, both programs must be informed of its end, and nothing may be left.

use remora_cm::{Cause, ConnectParam, EventKind, Instant};

use crate::node::{ACTIVE, Mad, Node, SECOND, acceptance, config, name, param};

/// The messages that connect and disconnect.
const MESSAGES: [&str; 5] = ["REQ", "REP", "RTU", "DREQ", "DREP"];
/// Maximum number of repetitions of a message.
const RETRIES: u8 = 15;

/// The way in which a connection ends.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum End {
    /// The program at this node disconnects; node 0 is active.
    By(usize),
    /// The active program disconnects as soon as it is ready, before it knows that the peer is.
    AtOnce,
    /// The program at this node disconnects and releases its id at once, like a program that exits.
    Death(usize),
}

/// The outcome of a connection, as reported to its programs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    established: [bool; 2],
    /// Number of times that the end was reported to each side.
    ended: [u32; 2],
    failed: [bool; 2],
}

/// A connection between two nodes over a [`Link`].
struct Life {
    nodes: [Node; 2],
    handles: [Option<u64>; 2],
    now: Instant,
    link: Link,
    end: End,
    /// True once the end has begun.
    ends: bool,
    heard: Outcome,
}

/// A link that treats messages of one name specially: it loses the first of them, and delivers the others
/// several times.
#[derive(Copy, Clone, Debug)]
struct Link {
    message: &'static str,
    lost: u32,
    copies: usize,
    seen: u32,
}

impl Link {
    fn copies_of(&mut self, mad: &Mad) -> usize {
        if name(mad) != self.message {
            return 1;
        }
        self.seen += 1;
        if self.seen <= self.lost { 0 } else { self.copies }
    }
}

impl Life {
    fn new(message: &'static str, lost: u32, copies: usize, end: End) -> Life {
        let mut nodes = [Node::new(1, config(1)), Node::new(2, config(2))];
        let now = Instant(SECOND);
        nodes[1].listen(4);
        let param = ConnectParam { max_cm_retries: RETRIES, ..param(1, 2) };
        nodes[0].cm.connect(now, ACTIVE, &param).unwrap();
        let link = Link { message, lost, copies, seen: 0 };
        Life { nodes, handles: [Some(ACTIVE), None], now, link, end, ends: false, heard: Outcome::default() }
    }

    /// Delivers what the nodes send, unless it is lost. Returns false if nothing was sent.
    fn deliver(&mut self) -> bool {
        let mut any = false;
        for sender in 0..2 {
            for mad in self.nodes[sender].sent() {
                any = true;
                for _ in 0..self.link.copies_of(&mad) {
                    self.nodes[1 - sender].receive(self.now, sender as u8 + 1, &mad);
                }
            }
        }
        any
    }

    /// Lets programs react to their events.
    fn react(&mut self) {
        for side in 0..2 {
            while let Some(event) = self.nodes[side].cm.next_event() {
                let cm = &mut self.nodes[side].cm;
                match event.kind {
                    EventKind::ConnectRequest(_) => {
                        self.handles[side] = Some(event.handle);
                        cm.accept(self.now, event.handle, &acceptance()).unwrap();
                    }
                    EventKind::ConnectResponse(_) => {
                        cm.ready_to_use(event.handle, &[]).unwrap();
                        self.heard.established[side] = true;
                        if self.end == End::AtOnce {
                            self.begin_end(0);
                        }
                    }
                    EventKind::Established => self.heard.established[side] = true,
                    EventKind::Disconnected(cause) => {
                        self.heard.ended[side] += 1;
                        if cause == Cause::Requested {
                            cm.disconnect(self.now, event.handle, &[]).unwrap();
                        }
                    }
                    EventKind::Rejected(_) | EventKind::Unreachable => self.heard.failed[side] = true,
                    EventKind::TimewaitExit => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn begin_end(&mut self, side: usize) {
        self.ends = true;
        let handle = self.handles[side].unwrap();
        self.nodes[side].cm.disconnect(self.now, handle, &[]).unwrap();
        if self.end == End::Death(side) {
            self.nodes[side].cm.destroy(self.now, handle).unwrap();
        }
    }

    /// Runs until nothing is left to happen. The connection is ended once both sides have it.
    fn run(mut self) -> Outcome {
        loop {
            let moved = self.deliver();
            self.react();
            if moved {
                continue;
            }
            if self.heard.established == [true; 2] && !self.ends {
                let (End::By(side) | End::Death(side)) = self.end else { unreachable!() };
                self.begin_end(side);
                continue;
            }
            let next = self.nodes.iter().map(|node| node.cm.next_deadline()).min().unwrap();
            if next == Instant::NEVER {
                let left: usize = self.nodes.iter().map(|node| node.cm.id_count()).sum();
                assert_eq!(left, 0, "{:?} {:?}", self.link, self.end);
                return self.heard;
            }
            assert!(next < self.now.after(600 * SECOND));
            self.now = next;
            for node in &mut self.nodes {
                node.cm.expire(self.now);
                node.cm.check();
            }
        }
    }
}

const ENDS: [End; 5] = [End::By(0), End::By(1), End::AtOnce, End::Death(0), End::Death(1)];

/// Checks that the end is reported once to both programs, and not at all to a program that has exited.
#[track_caller]
fn expect_a_whole_life(message: &'static str, lost: u32, copies: usize) {
    for end in ENDS {
        let heard = Life::new(message, lost, copies, end).run();
        let expected = |side| u32::from(end != End::Death(side));
        assert_eq!(heard.ended, [expected(0), expected(1)], "{message} {lost} {copies} {end:?}");
        assert_eq!(heard.failed, [false; 2], "{message} {lost} {copies} {end:?}");
        // A DREQ may arrive before the passive side has been informed of the establishment.
        assert!(heard.established[0] && (heard.established[1] || end == End::AtOnce), "{message} {end:?}");
    }
}

#[test]
fn each_message_may_be_lost_as_often_as_it_is_repeated_and_the_end_is_told_once() {
    for message in MESSAGES {
        for lost in [1, 2, u32::from(RETRIES)] {
            expect_a_whole_life(message, lost, 1);
        }
    }
}

#[test]
fn each_message_may_be_doubled_also_after_a_loss_and_the_end_is_told_once() {
    for message in MESSAGES {
        expect_a_whole_life(message, 0, 2);
        expect_a_whole_life(message, 1, 3);
    }
}

#[test]
fn without_a_req_or_rep_or_rtu_the_connection_fails_on_both_sides_that_know_of_it() {
    let heard = |message| Life::new(message, u32::MAX, 1, End::By(0)).run();
    assert_eq!(heard("REQ").failed, [true, false]);
    assert_eq!(heard("REP").failed, [true, true]);
    let unfinished = heard("RTU");
    assert_eq!((unfinished.failed, unfinished.ended), ([false, true], [1, 0]));
}

#[test]
fn without_a_drep_the_side_that_asks_gives_up_and_the_other_one_was_told() {
    for side in [0, 1] {
        assert_eq!(Life::new("DREP", u32::MAX, 1, End::By(side)).run().ended, [1, 1]);
    }
}

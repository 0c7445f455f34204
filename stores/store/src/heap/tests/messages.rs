//! Tests of valid and invalid messages.

use remora_nic::{CompletionKind, prism};
use remora_transport::Status;

use super::super::message::{GRACE, LONGEST, MOST, emit_grace, emit_returned, parse_grace, parse_returned};
use super::*;
use crate::codec::{decode, encode};

fn completion(id: u64, len: usize) -> WorkCompletion {
    WorkCompletion {
        id,
        status: Status::Success,
        kind: CompletionKind::Receive,
        byte_len: len as u32,
        imm: None,
        invalidated: None,
        qp_num: 0,
        src_qp: 0,
        grh: None,
        outcome: prism::Verdict::Done,
    }
}

#[test]
fn messages_come_back_as_they_went_and_nothing_else_is_taken() {
    let mut bytes = [0; LONGEST];
    for count in [0, 1, MOST, MOST + 1] {
        let len = emit_returned(&mut bytes, 9, (0..count as u64).map(|index| index + 5));
        let (grace, addresses) = parse_returned(&bytes[..len]).unwrap();
        assert_eq!((grace, addresses.collect::<Vec<_>>()), (9, (5..5 + count.min(MOST) as u64).collect()));
        assert!(parse_returned(&bytes[..len - 1]).is_none());
    }
    bytes[4] = MOST as u8 + 1;
    assert!(parse_returned(&bytes).is_none());
    assert_eq!(parse_grace(&emit_grace(7)), Some(7));
    assert_eq!(parse_grace(&emit_grace(7)[..GRACE - 1]), None);
    assert_eq!(parse_grace(&[0; GRACE]), None);
}

#[test]
fn classes_come_back_as_they_went_and_know_their_buffers() {
    let classes = classes();
    let bytes = encode(b"TEST", &classes);
    assert_eq!(decode(b"TEST", &bytes), Some(classes.clone()));
    assert_eq!(decode::<Classes>(b"TEST", &bytes[..bytes.len() - 1]), None);
    for wrong in [vec![classes.all()[0]; 2], Vec::new()] {
        assert_eq!(decode::<Classes>(b"TEST", &encode(b"TEST", &wrong)), None, "{wrong:?}");
    }
    assert_eq!(
        [0, 64, 65, 512, 513].map(|len| classes.for_len(len)),
        [Some(0), Some(0), Some(1), Some(1), None]
    );
    assert_eq!(classes.find(100_000 + 512 * 69), Some((1, 69)));
    assert_eq!([99_999, 100_001, 100_000 + 512 * 70].map(|address| classes.find(address)), [None; 3]);
    let twice = vec![classes.all()[0]; 2];
    assert_eq!(Classes::new(twice), None, "two of one size");
    assert_eq!(Classes::new(Vec::new()), None);
}

#[test]
fn who_says_what_no_client_says_is_to_be_ended() {
    let config = KeeperConfig { peers: 1 };
    let local = block(config.local_len());
    let mut keeper = Keeper::new(config, classes(), local.clone()).unwrap();
    let mut nic = Posted::default();
    let peer = keeper.accept(&mut nic).unwrap();
    assert!(keeper.accept(&mut nic).is_none(), "as many as it was made for");
    let mut lists = Free { free: BTreeSet::new() };
    let mut bytes = [0; LONGEST];
    // Addresses that are no buffers are counted. A number that the keeper did not send is refused.
    let len = emit_returned(&mut bytes, 0, [1, 100_000].into_iter());
    local.write(nic.receives[1].1.addr as usize, &bytes[..len]);
    keeper.handle(peer, &completion(1, len), &mut nic, &mut lists).unwrap();
    let counters = keeper.counters();
    assert_eq!((counters.returned, counters.strangers, lists.free.len()), (1, 1, 1));
    let len = emit_returned(&mut bytes, 3, std::iter::empty());
    local.write(0, &bytes[..len]);
    assert_eq!(keeper.handle(peer, &completion(0, len), &mut nic, &mut lists), Err(Broken::Protocol));
    local.write(0, &[0; LONGEST]);
    for (id, len) in [(0, LONGEST), (0, 3), (9, 16), (0, LONGEST + 1)] {
        assert_eq!(keeper.handle(peer, &completion(id, len), &mut nic, &mut lists), Err(Broken::Protocol));
    }
    let failed = WorkCompletion { status: Status::WrFlushed, ..completion(0, 0) };
    let broken = Broken::Completion(Status::WrFlushed);
    assert_eq!(keeper.handle(peer, &failed, &mut nic, &mut lists), Err(broken));
    keeper.disconnect(peer);
    assert_eq!(keeper.handle(peer, &failed, &mut nic, &mut lists), Ok(()), "of a forgotten client");
}

#[test]
fn a_sweep_posts_no_buffer_that_the_nic_has_given_back() {
    let config = KeeperConfig { peers: 2 };
    let mut keeper = Keeper::new(config, classes(), block(config.local_len())).unwrap();
    let mut nic = Posted::default();
    let [one, two] = [keeper.accept(&mut nic).unwrap(), keeper.accept(&mut nic).unwrap()];
    let mut lists = Free { free: BTreeSet::new() };
    let table = Slots(vec![0]);
    keeper.post_all(&mut lists, |_| false).unwrap();
    // Half of the second client's buffers have arrived when the first client dies. The second one dies, too,
    // while the sweep waits for it.
    lists.free.remove(&100_000);
    keeper.disconnect(one);
    while keeper.work(&table, &mut lists) {}
    assert_eq!(keeper.stage(), Stage::Grace { second: false });
    lists.free.insert(100_000);
    keeper.disconnect(two);
    while keeper.work(&table, &mut lists) {}
    assert_eq!((keeper.stage(), keeper.counters().swept, lists.free.len()), (Stage::Idle, 0, 200));
}

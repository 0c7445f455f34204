//! The bytes of work queue entries and completion queue entries, as `docs/reference/wire/queues.md` draws
//! them. Programs write
//! them and chains rewrite them: a change here breaks both.

use remora_memory::{Access, Binding, Key};
use remora_nic::cqe::Cqe;
use remora_nic::wqe::{Bounds, SLOT, Wqe, WqeOpcode, sges};
use remora_nic::{
    CompletionKind, Flags, NetworkType, Operation, Payload, PostError, ReceiveQueue, ReceiveRequest, Remote,
    Ring, SendQueue, Sge, Status, WorkCompletion, WorkRequest, prism,
};

const PLAIN: Flags = Flags { signaled: false, fence: false, solicited: false };
const BOUNDS: Bounds = Bounds { max_sge: 30, max_inline: 960 };

fn remote() -> Remote {
    Remote { addr: 0x8877_6655_4433_2211, rkey: Key::new(0xddcc_bbaa) }
}

fn element(number: u8) -> Sge {
    Sge {
        addr: 0x0101_0101_0101_0101 * u64::from(number),
        len: 0x100 + u32::from(number),
        lkey: Key::new(0x0a0b_0c00),
    }
}

/// The slots of a request; the id is the same in all of them.
fn slots(operation: Operation, payload: Payload<'_>, flags: Flags) -> Vec<[u8; SLOT]> {
    let mut queue = send_queue(16);
    queue.push(&WorkRequest { id: 0x6655_4433_2211, operation, payload, flags }).expect("it fits");
    filled(queue.ring(), queue.produced())
}

fn send_queue(slots: u32) -> SendQueue {
    SendQueue::new(Ring::heap(slots).expect("memory"), BOUNDS)
}

/// The slots of a receive with this list.
fn receive_slots(id: u64, list: &[Sge]) -> Vec<[u8; SLOT]> {
    let mut queue = ReceiveQueue::new(Ring::heap(16).expect("memory"), list.len() as u32);
    queue.push(&ReceiveRequest { id, sges: list }).expect("it fits");
    filled(queue.ring(), queue.produced())
}

fn filled(ring: &Ring, count: u64) -> Vec<[u8; SLOT]> {
    let mut slots = vec![[0; SLOT]; count as usize];
    slots.iter_mut().enumerate().for_each(|(index, slot)| ring.load(index as u64, slot));
    slots
}

/// Hexadecimal digits, spaces ignored; missing bytes at the end are zero.
fn bytes(digits: &str) -> [u8; SLOT] {
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let mut bytes = [0; SLOT];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let text = std::str::from_utf8(pair).expect("digits");
        *byte = u8::from_str_radix(text, 16).expect("two digits");
    }
    bytes
}

#[test]
fn a_write_with_immediate_data() {
    let list = [element(1)];
    let flags = Flags { signaled: true, fence: true, solicited: true };
    let slots = slots(Operation::WriteImm(remote(), 0xfeed_beef), Payload::Sges(&list), flags);
    let expected = bytes(
        "05 07 112233445566  0101010101010101  0101000000000000  000c0b0a aabbccdd
         1122334455667788  0100000000000000  0000000000000000  efbeedfe00000000",
    );
    assert_eq!(slots, [expected]);
}

#[test]
fn both_atomics_have_each_operand_in_a_word_of_its_own() {
    let list = [Sge { len: 8, ..element(1) }];
    let swap = Operation::CompareSwap {
        remote: remote(),
        compare: 0x0807_0605_0403_0201,
        swap: 0x1817_1615_1413_1211,
    };
    let expected = bytes(
        "07 00 112233445566  0101010101010101  0800000000000000  000c0b0a aabbccdd
         1122334455667788  0102030405060708  1112131415161718",
    );
    assert_eq!(slots(swap, Payload::Sges(&list), PLAIN), [expected]);
    let add = Operation::FetchAdd { remote: remote(), add: 0x1817_1615_1413_1211 };
    let expected = bytes(
        "08 00 112233445566  0101010101010101  0800000000000000  000c0b0a aabbccdd
         1122334455667788  0000000000000000  1112131415161718",
    );
    assert_eq!(slots(add, Payload::Sges(&list), PLAIN), [expected]);
}

#[test]
fn the_op_codes_have_the_numbers_of_the_document() {
    let key = Key::new(0x0403_0201);
    for (number, operation) in [
        (0, Operation::Nop),
        (1, Operation::Send),
        (2, Operation::SendImm(0x0403_0201)),
        (3, Operation::SendInv(key)),
        (4, Operation::Write(remote())),
        (6, Operation::Read(remote())),
        (9, Operation::LocalInv(key)),
    ] {
        let slot = slots(operation, Payload::Sges(&[]), PLAIN)[0];
        assert_eq!((slot[0], slot[1]), (number, 0), "{operation:?}");
        let carries = matches!(number, 2 | 3 | 9);
        assert_eq!(slot[56..], if carries { [1, 2, 3, 4, 0, 0, 0, 0] } else { [0; 8] }, "{operation:?}");
    }
}

#[test]
fn a_list_of_four_takes_three_slots_with_two_elements_in_each_further_one() {
    let list = [element(1), element(2), element(3), element(4)];
    let slots = slots(Operation::Send, Payload::Sges(&list), PLAIN);
    assert_eq!(slots.len(), 3);
    assert_eq!(slots[0][40..48], [4, 0, 0, 0, 0, 0, 0, 0]);
    let expected = bytes(
        "0202020202020202 02010000 00000000 000c0b0a 000000000000000000000000
         0303030303030303 03010000 00000000 000c0b0a 000000000000000000000000",
    );
    assert_eq!(slots[1], expected);
    assert_eq!(sges(&slots[1]), [element(2), element(3)]);
    assert_eq!(sges(&slots[2])[0], element(4));
    assert_eq!(Wqe::parse(&slots[0]).slots(), Some(3));
}

#[test]
fn inline_data_follow_in_whole_slots() {
    let data: Vec<u8> = (0..100).collect();
    let slots = slots(Operation::Write(remote()), Payload::Inline(&data), PLAIN);
    assert_eq!(slots.len(), 3);
    assert_eq!((slots[0][0], slots[0][1], slots[0][16]), (4, 8, 100));
    assert_eq!(slots[1][..], data[..64]);
    assert_eq!(slots[2][..36], data[64..]);
    assert_eq!(slots[2][36..], [0; 28]);
}

#[test]
fn one_compare_and_swap_of_the_header_word_changes_the_op_code_and_nothing_else() {
    let list = [element(1)];
    let slot = slots(Operation::Write(remote()), Payload::Sges(&list), PLAIN)[0];
    let mut word = u64::from_le_bytes(slot[..8].try_into().expect("8 bytes"));
    assert_eq!(word & 0xff, u64::from(WqeOpcode::WRITE.0));
    word = word & !0xff | u64::from(WqeOpcode::NOP.0);
    let mut changed = slot;
    changed[..8].copy_from_slice(&word.to_le_bytes());
    let before = Wqe::parse(&slot);
    let after = Wqe::parse(&changed);
    assert_eq!(after.opcode(), WqeOpcode::NOP);
    assert_eq!(Wqe { header: before.header, ..after }, before);
    assert_eq!(after.id(), before.id());
}

#[test]
fn what_the_fields_cannot_hold_is_refused_and_nothing_is_written() {
    let refused = |operation, payload, slots| {
        let mut queue = send_queue(slots);
        let request = WorkRequest { id: 0, operation, payload, flags: PLAIN };
        let refused = queue.push(&request).expect_err("too much");
        assert_eq!((queue.produced(), filled(queue.ring(), 1)), (0, vec![[0; SLOT]]));
        refused
    };
    let list = [element(1); 31];
    let data = [0; 961];
    let send = Operation::Send;
    let read = Operation::Read(remote());
    assert_eq!(refused(send, Payload::Sges(&list), 16), PostError::TooManySges);
    assert_eq!(refused(send, Payload::Inline(&data), 16), PostError::TooMuchInline);
    assert_eq!(refused(read, Payload::Inline(&data[..1]), 16), PostError::BadPayload);
    assert_eq!(refused(send, Payload::Sges(&list[..2]), 1), PostError::QueueFull);
}

/// The header word keeps 48 bits, as chains need it; the length word has the rest above 16 bits of nothing.
#[test]
fn an_id_of_64_bits_stands_in_the_header_word_and_in_the_upper_quarter_of_the_length_word() {
    const ID: u64 = 0x8877_6655_4433_2211;
    let list = [element(1)];
    let request = |operation, payload| WorkRequest { id: ID, operation, payload, flags: PLAIN };
    let first = |request: &WorkRequest<'_>| {
        let mut queue = send_queue(16);
        queue.push(request).expect("it fits");
        filled(queue.ring(), 1)[0]
    };
    let written = first(&request(Operation::Write(remote()), Payload::Sges(&list)));
    let expected = bytes(
        "04 00 112233445566  0101010101010101  0101000000007788  000c0b0a aabbccdd
         1122334455667788  0100000000000000",
    );
    assert_eq!(written, expected);
    let wqe = Wqe::parse(&written);
    assert_eq!((wqe.id(), wqe.length(), wqe.sge()), (ID, 0x101, list[0]));
    let inline = Wqe::parse(&first(&request(Operation::Send, Payload::Inline(&[1; 70]))));
    assert_eq!((inline.id(), inline.length(), inline.slots()), (ID, 70, Some(3)));
    let binding = Binding {
        window: Key::new(0x100),
        key: Key::new(0x101),
        region: Key::new(0x200),
        va: 1,
        len: 0x7fff_ffff_ffff,
        access: Access::REMOTE_READ,
    };
    let bind = Wqe::parse(&first(&request(Operation::BindWindow(binding), Payload::Sges(&[]))));
    assert_eq!((bind.id(), bind.binding()), (ID, Some(binding)));
    let prism = prism::WorkRequest {
        id: ID,
        operation: prism::Operation::Read { from: prism::Address::indirect(remote()), len: 8, into: &list },
        conditional: false,
        redirect: None,
        result: None,
        flags: PLAIN,
    };
    let mut queue = send_queue(16);
    queue.push_prism(&prism).expect("it fits");
    let slot = filled(queue.ring(), 1)[0];
    assert_eq!((Wqe::parse(&slot).id(), Wqe::parse(&slot).sge()), (ID, list[0]));
    let receive = receive_slots(ID, &list);
    assert_eq!((Wqe::parse(&receive[0]).id(), Wqe::parse(&receive[0]).sge()), (ID, list[0]));
}

/// No region is that long, so the work request still fails; its length must not become part of the id.
#[test]
fn a_binding_longer_than_the_length_field_is_cut_to_it_and_leaves_the_id_alone() {
    let binding = Binding {
        window: Key::new(0x100),
        key: Key::new(0x101),
        region: Key::new(0x200),
        va: 0,
        len: u64::MAX,
        access: Access::NONE,
    };
    let slot = slots(Operation::BindWindow(binding), Payload::Sges(&[]), PLAIN)[0];
    let wqe = Wqe::parse(&slot);
    assert_eq!((wqe.id(), wqe.length()), (0x6655_4433_2211, (1 << 48) - 1));
}

#[test]
fn a_receive_has_its_id_its_first_element_and_the_length_of_its_list() {
    let list = [element(1), element(2)];
    let slots = receive_slots(0x6655_4433_2211, &list);
    let first = bytes(
        "00 00 112233445566  0101010101010101  0101000000000000  000c0b0a 00000000
         0000000000000000  0200000000000000",
    );
    assert_eq!((slots.len(), slots[0]), (2, first));
    assert_eq!(sges(&slots[1])[0], element(2));
}

#[test]
fn a_completion_and_its_fields() {
    let completion = WorkCompletion {
        id: 0x6655_4433_2211,
        status: Status::Success,
        kind: CompletionKind::Receive,
        byte_len: 0x0102_0304,
        imm: Some(0xfeed_beef),
        invalidated: None,
        qp_num: 0x00ab_cdef,
        src_qp: 0,
        grh: None,
        outcome: prism::Verdict::TooLong,
    };
    let entry = Cqe { completion, solicited: true, wqe_index: 0x11, timestamp: 0 };
    let words = [0x6655_4433_2211_0080, 0x0102_0304, 0x1_feed_beef, 0x1_00ab_cdef, 0x11, 4, 0, 9];
    assert_eq!(entry.words(9), words);
    assert_eq!(Cqe::parse(&words), entry);
    let stamped = Cqe { timestamp: 0xfe_dcba_9876_5432, ..entry };
    assert_eq!(stamped.words(9)[5], 0xfedc_ba98_7654_3204);
    assert_eq!(Cqe::parse(&stamped.words(9)), stamped);
    let wide = Cqe { completion: WorkCompletion { id: 0x8877_6655_4433_2211, ..completion }, ..entry };
    assert_eq!(wide.words(9)[..2], [0x6655_4433_2211_0080, 0x8877_0000_0102_0304]);
    assert_eq!(Cqe::parse(&wide.words(9)), wide);
    for (grh, word) in [(Some(NetworkType::Ipv6), 0x1_0000_0007), (Some(NetworkType::Ipv4), 0x3_0000_0007)] {
        let datagram = Cqe { completion: WorkCompletion { src_qp: 7, grh, ..completion }, ..entry };
        assert_eq!(datagram.words(9)[6], word);
        assert_eq!(Cqe::parse(&datagram.words(9)), datagram);
    }
    let key = WorkCompletion { imm: None, invalidated: Some(Key::new(5)), ..completion };
    let key = Cqe { completion: key, ..entry };
    assert_eq!(key.words(9)[2], 0x2_0000_0005);
    assert_eq!(Cqe::parse(&key.words(9)), key);
}

#[test]
fn every_kind_and_status_comes_back_from_its_number() {
    use CompletionKind::{CompareSwap, FetchAdd, LocalInv, Nop, Read, Receive, ReceiveWriteImm, Send, Write};
    let kinds = [
        (Send, 0),
        (Write, 1),
        (Read, 2),
        (CompareSwap, 3),
        (FetchAdd, 4),
        (LocalInv, 6),
        (Nop, 100),
        (Receive, 128),
        (ReceiveWriteImm, 129),
    ];
    for (kind, number) in kinds {
        for status in Status::ALL {
            let completion = WorkCompletion {
                id: 0,
                status,
                kind,
                byte_len: 0,
                imm: None,
                invalidated: None,
                qp_num: 0,
                src_qp: 0,
                grh: None,
                outcome: prism::Verdict::Done,
            };
            let words = Cqe { completion, solicited: false, wqe_index: 0, timestamp: 0 }.words(1);
            assert_eq!(words[0], number | (status as u64) << 8);
            assert_eq!(Cqe::parse(&words).completion, completion);
        }
    }
}

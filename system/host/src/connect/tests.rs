//! The set-up messages against literal bytes, random values and nonsense.

use super::*;
use crate::connect::Capacity;
use std::net::Ipv4Addr;

fn hello() -> Hello {
    Hello {
        kind: PortKind::Shm,
        link: LinkOffer::New("remora-1f".to_owned()),
        path_mtu: 4096,
        service: Service::Rc,
        qkey: 0,
        qp: Qpn::new(0x01_0203),
        psn: Psn::new(0x0a_0b0c),
        initiator_depth: 16,
        responder_resources: 128,
        endpoint: Endpoint { address: Ipv4Addr::new(127, 1, 2, 3).into(), udp_port: 4791 },
        engine: EngineId(0x1122),
        extensions: 1 << 40 | IRN,
        irn_reach: 128,
        private_data: vec![9, 8, 7],
    }
}

#[test]
fn literal_bytes() {
    let expected = [
        &b"RemoraCM"[..],
        &[1, 0, 1, 0, 80, 0, 0, 0],
        &[1, 2, 0, 16, 3, 2, 1, 0, 0x0c, 0x0b, 0x0a, 0, 16, 128, 0xb7, 0x12],
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 1, 2, 3],
        &[0x22, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[1, 0, 0, 0, 0, 1, 0, 0, 9, 0, 3, 0, 0, 0, 0, 0],
        &[128, 0, 0, 0],
        b"remora-1f",
        &[9, 8, 7],
    ]
    .concat();
    assert_eq!(Message::Request(hello()).emit(), expected);
    assert_eq!(Message::parse(&expected).unwrap(), Message::Request(hello()));
}

#[test]
fn every_message_comes_back() {
    let udp =
        Hello { kind: PortKind::Udp, link: LinkOffer::None, private_data: vec![1; MAX_PRIVATE], ..hello() };
    let messages = [
        Message::Accept(udp),
        Message::Accept(Hello { link: LinkOffer::Existing, ..hello() }),
        Message::Request(Hello { service: Service::XrcTarget, qkey: 0x8765_4321, ..hello() }),
        Message::Request(Hello { link: LinkOffer::Wanted, private_data: Vec::new(), ..hello() }),
        Message::Ready,
        Message::Go,
        Message::Reject("no place left".to_owned()),
        Message::Full(Full::clients(64)),
        Message::Full(Full { capacity: Capacity::Handshakes, taken: 1, most: 1 << 20 }),
    ];
    for message in messages {
        assert_eq!(Message::parse(&message.emit()).unwrap(), message);
    }
}

#[test]
fn literal_bytes_of_a_server_without_a_place() {
    let expected =
        [&b"RemoraCM"[..], &[1, 0, 6, 0, 12, 0, 0, 0], &[1, 0, 0, 0, 64, 0, 0, 0, 64, 0, 0, 0]].concat();
    assert_eq!(Message::Full(Full::clients(64)).emit(), expected);
    for (offset, byte) in [(16, 0), (16, 3)] {
        let mut bytes = expected.clone();
        bytes[offset] = byte;
        assert!(matches!(Message::parse(&bytes), Err(ConnectError::BadMessage)), "byte {offset} = {byte}");
    }
    assert!(Message::parse(&[&expected[..12], &[11, 0, 0, 0], &expected[16..27]].concat()).is_err());
}

#[test]
fn the_connection_is_kept_only_if_both_sides_want_it() {
    let with = Hello { extensions: IRN | LASTING, ..hello() };
    for (ours, theirs, lasting) in
        [(with.clone(), with.clone(), true), (hello(), with.clone(), false), (with, hello(), false)]
    {
        assert_eq!(crate::connect::Agreement::new(remora_port::Peer(1), &ours, theirs).lasting, lasting);
    }
}

#[test]
fn values_out_of_bounds_are_refused() {
    let good = Message::Request(hello()).emit();
    // Offset in the whole message, and a byte that makes no sense there.
    let bad = [
        (16, 0),
        (16, 4),
        (17, 4),
        (17, 1),
        (18, 1),
        (19, 32),
        (23, 1),
        (27, 1),
        (28, 129),
        (29, 200),
        (72, 8),
        (74, 4),
        (80, 0),
        (80, 129),
        (80, 32),
    ];
    for (offset, byte) in bad {
        let mut bytes = good.clone();
        bytes[offset] = byte;
        assert!(matches!(Message::parse(&bytes), Err(ConnectError::BadMessage)), "byte {offset} = {byte}");
    }
    let mut no_text = good.clone();
    no_text[84] = 0xff;
    assert!(matches!(Message::parse(&no_text), Err(ConnectError::BadMessage)), "a name that is not UTF-8");
}

#[test]
fn an_unknown_extension_is_ignored_and_a_reach_without_irn_too() {
    let mut bytes = Message::Request(Hello { extensions: 0, irn_reach: 0, ..hello() }).emit();
    (bytes[69], bytes[80]) = (0xff, 77);
    let Message::Request(got) = Message::parse(&bytes).unwrap() else { panic!() };
    assert_eq!((got.extensions, got.irn_reach), (0xff << 40, 0));
}

#[test]
fn irn_is_agreed_on_only_if_both_sides_have_it() {
    let with = hello();
    let without = Hello { extensions: 0, irn_reach: 0, ..hello() };
    let far = Hello { irn_reach: 512, ..hello() };
    for (ours, theirs, agreed) in
        [(&with, &far, Some(512)), (&far, &with, Some(128)), (&with, &without, None), (&without, &with, None)]
    {
        for (prism, strom) in [(0, 0), (PRISM, 0), (0, STROM), (PRISM, STROM)] {
            let [ours, theirs] = [ours, theirs]
                .map(|hello| Hello { extensions: hello.extensions | prism | strom, ..hello.clone() });
            let agreement = crate::connect::Agreement::new(remora_port::Peer(1), &ours, theirs);
            assert_eq!((agreement.irn, agreement.prism, agreement.strom), (agreed, prism != 0, strom != 0));
        }
    }
}

#[test]
fn a_head_of_another_program_version_or_length_is_refused() {
    let good = Message::Request(hello()).emit();
    let with = |offset: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[offset] = byte;
        Message::parse(&bytes)
    };
    assert!(matches!(with(0, b'r'), Err(ConnectError::NotRemora)));
    assert!(matches!(with(9, 1), Err(ConnectError::Version(version)) if version == 0x100 | VERSION));
    for len in 0..good.len() {
        assert!(matches!(Message::parse(&good[..len]), Err(ConnectError::BadMessage)), "{len} bytes");
    }
    assert!(matches!(Message::parse(&[&good[..], &[0]].concat()), Err(ConnectError::BadMessage)));
    // One byte more than any body has, and the longest that a peer can claim.
    let head = |len: u32| [&good[..12], &len.to_le_bytes(), &vec![0; len.min(1 << 16) as usize]].concat();
    assert!(matches!(Message::parse(&head(MAX_BODY as u32 + 1)), Err(ConnectError::BadMessage)));
    assert!(matches!(Message::parse(&head(u32::MAX)), Err(ConnectError::BadMessage)));
}

#[test]
fn a_refusal_is_cut_between_characters_and_cleaned_of_control_characters() {
    let long = "ä".repeat(300);
    let Message::Reject(words) = Message::parse(&Message::Reject(long).emit()).unwrap() else { panic!() };
    assert_eq!(words, "ä".repeat(200));
    let Message::Reject(words) = Message::parse(&Message::Reject("a\x1b[2Jb\n".to_owned()).emit()).unwrap()
    else {
        panic!()
    };
    assert_eq!(words, "a [2Jb ");
}

#[test]
fn any_bytes_are_taken_or_refused_without_a_panic() {
    let mut random = 88_172_645_463_325_252u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let good = Message::Request(hello()).emit();
    let mut taken = 0;
    let mut refused = 0;
    for _ in 0..200_000 {
        let mut body = good[HEAD..].to_vec();
        for _ in 0..next() % 3 {
            let offset = next() as usize % body.len();
            body[offset] = next() as u8;
        }
        body.truncate(body.len() - (next() % 4 == 0) as usize * (next() as usize % body.len()));
        match Message::of(next() as u16 % 7, &body) {
            Ok(Message::Request(hello) | Message::Accept(hello)) => {
                taken += 1;
                assert_eq!(Hello::parse(&hello.emit()), Some(hello));
            }
            Ok(_) => {}
            Err(_) => refused += 1,
        }
    }
    assert!(taken > 1000 && refused > 1000, "{taken} {refused}");
}

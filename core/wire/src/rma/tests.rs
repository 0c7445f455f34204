use proptest::prelude::*;

use super::*;
use crate::WireError;

fn body(kind: Kind) -> Body {
    match kind {
        Kind::Read | Kind::Write | Kind::Rekey => {
            Body::Request(request::Repr { pid: 1, incarnation: 2, max_payload: 1024 })
        }
        Kind::Solicit => Body::Solicit(solicit::Repr { server_slot: 3, max_payload: 4096, timeout: 20_000 }),
        Kind::Completion => Body::Completion(completion::Repr { status: Status::Ok }),
        _ => Body::None,
    }
}

fn message(kind: Kind, length: u32) -> Vec<u8> {
    let nonce = Nonce { sender: 5, counter: 6 };
    let header = header::Repr { kind, class: Class::Latency, slot: 7, region: 8, offset: 64, length, nonce };
    let body = body(kind);
    let mut bytes = vec![0xa5; Message::len(&header, &body)];
    Message::emit_clear(&header, &body, &mut bytes);
    bytes
}

#[test]
fn each_kind_has_its_body_its_payload_and_a_tag() {
    for kind in Kind::ALL {
        let bytes = message(kind, 128);
        let message = Message::parse(&bytes).unwrap();
        assert_eq!((message.header.kind, message.body), (kind, body(kind)));
        assert!(message.body.fits(kind), "{kind:?}");
        assert_eq!(message.sealed.len(), if kind == Kind::Data { 128 } else { 0 });
        assert_eq!(message.clear.len() + message.sealed.len() + TAG_LEN, bytes.len());
        for len in 0..bytes.len() {
            assert!(Message::parse(&bytes[..len]).is_err(), "{kind:?} cut to {len}");
        }
        assert_eq!(Message::parse(&[&bytes[..], &[0]].concat()).unwrap_err(), WireError::Length);
    }
}

#[test]
fn data_of_no_bytes_or_more_than_an_operation_is_refused() {
    assert!(Message::parse(&message(Kind::Data, MAX_OPERATION)).is_ok());
    for length in [0, MAX_OPERATION + 1] {
        assert_eq!(Message::parse(&message(Kind::Data, length)).unwrap_err(), WireError::Length);
    }
    let mut bytes = message(Kind::Data, 64);
    bytes[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(Message::parse(&bytes).unwrap_err(), WireError::Length);
}

/// Checks that an unauthenticated sender receives no more bytes than it sent (`docs/reference/rma.md`).
#[test]
fn no_reply_to_a_request_without_its_key_is_longer_than_the_request() {
    let request = message(Kind::Read, 4096).len();
    assert_eq!(request, REQUEST_LEN);
    for kind in [Kind::Solicit, Kind::Completion, Kind::Nack, Kind::AuthenticationFailure] {
        assert!(message(kind, 0).len() <= request, "{kind:?}");
    }
}

#[test]
fn associated_data_is_the_clear_part_and_the_nonces_in_order() {
    let mut out = [0; MAX_AAD];
    let [first, second] = [1, 2].map(|counter| Nonce { sender: 9, counter });
    assert_eq!(TagSequence::EMPTY.aad(&[1, 2, 3], &mut out), [1, 2, 3]);
    let tags = TagSequence::new(first).then(second);
    assert_eq!(tags.hops(), [first, second]);
    let expected = [&[7][..], &first.bytes(), &second.bytes()].concat();
    assert_eq!(tags.aad(&[7], &mut out), expected);
    let longest = [0; header::LEN + request::LEN];
    assert_eq!(tags.then(first).aad(&longest, &mut out).len(), MAX_AAD);
}

proptest! {
    #[test]
    fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0xe0_u8..0xf0) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        if let Ok(message) = Message::parse(&bytes) {
            prop_assert_eq!(message.clear.len() + message.sealed.len() + TAG_LEN, bytes.len());
            prop_assert!(message.body.fits(message.header.kind));
        }
    }
}

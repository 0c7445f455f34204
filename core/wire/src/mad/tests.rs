//! Tests of whole MADs; those of their parts are in `layouts`.

use super::*;
use crate::WireError;
use proptest::prelude::*;

mod layouts;

/// Generates a body of arbitrary bytes.
fn any_body() -> impl Strategy<Value = [u8; BODY_LEN]> {
    proptest::collection::vec(any::<u8>(), BODY_LEN).prop_map(|bytes| bytes.try_into().unwrap())
}

const SENT: [Attribute; 9] = [
    Attribute::REQ,
    Attribute::MRA,
    Attribute::REJ,
    Attribute::REP,
    Attribute::RTU,
    Attribute::DREQ,
    Attribute::DREP,
    Attribute::SIDR_REQ,
    Attribute::SIDR_REP,
];

fn send(attribute: Attribute) -> header::Repr {
    header::Repr::cm(Method::SEND, 0x0102_0304_0506_0708, attribute)
}

#[test]
fn each_attribute_is_a_message_of_its_own() {
    for attribute in SENT {
        let message = CmMessage::parse(&send(attribute), &[0; BODY_LEN]).unwrap();
        assert_eq!(message.attribute(), attribute);
        let mut mad = [0x5a; LEN];
        message.emit(0x0102_0304_0506_0708, &mut mad);
        assert_eq!(header::Repr::parse(&header::View::new(&mad).unwrap()), send(attribute));
        assert_eq!(mad[header::LEN..], [0; BODY_LEN]);
    }
}

#[test]
fn class_port_info_is_asked_for_and_answered() {
    let get = header::Repr::cm(Method::GET, 1, Attribute::CLASS_PORT_INFO);
    assert_eq!(CmMessage::parse(&get, &[0; BODY_LEN]), Ok(CmMessage::GetClassPortInfo));
    let mut mad = [0x5a; LEN];
    CmMessage::GetClassPortInfo.emit(1, &mut mad);
    assert_eq!(header::Repr::parse(&header::View::new(&mad).unwrap()), get);

    let mut bytes = [0; class_port_info::LEN];
    bytes[..4].copy_from_slice(&[1, 2, 0x32, 0]);
    let info = class_port_info::Repr::parse(&class_port_info::View::new(&bytes).unwrap());
    CmMessage::ClassPortInfo(info).emit(1, &mut mad);
    let header = header::Repr::parse(&header::View::new(&mad).unwrap());
    assert_eq!(header, header::Repr { method: Method::GET_RESP, ..get });
    assert_eq!(CmMessage::parse(&header, &mad[header::LEN..]), Ok(CmMessage::ClassPortInfo(info)));
}

#[test]
fn lap_apr_and_other_attributes_methods_and_classes_are_not_supported() {
    let parse = |header: header::Repr| CmMessage::parse(&header, &[0; BODY_LEN]);
    for attribute in [Attribute::LAP, Attribute::APR, Attribute(0x1b), Attribute(0), Attribute(0xffff)] {
        assert_eq!(parse(send(attribute)), Err(WireError::UnsupportedMad(attribute.0)));
    }
    for method in [Method::GET, Method::GET_RESP, Method(2), Method(0)] {
        let req = header::Repr { method, ..send(Attribute::REQ) };
        assert_eq!(parse(req), Err(WireError::UnsupportedMad(0x10)));
    }
    let subnet = header::Repr { class: 3, ..send(Attribute::REQ) };
    assert_eq!(parse(subnet), Err(WireError::UnsupportedMad(0x10)));
}

#[test]
fn other_versions_are_errors() {
    let parse = |header: header::Repr| CmMessage::parse(&header, &[0; BODY_LEN]);
    let old = header::Repr { base_version: 0, ..send(Attribute::REQ) };
    assert_eq!(parse(old), Err(WireError::MadVersion(0)));
    let new = header::Repr { class_version: 3, ..send(Attribute::REQ) };
    assert_eq!(parse(new), Err(WireError::MadVersion(3)));
}

#[test]
fn a_message_that_is_cut_is_an_error_at_each_length() {
    for attribute in SENT {
        for len in 0..BODY_LEN {
            let cut = CmMessage::parse(&send(attribute), &[0; BODY_LEN][..len]);
            assert_eq!(cut, Err(WireError::Truncated), "{attribute} {len}");
        }
    }
}

#[test]
fn times_double_from_4_us_to_2_4_hours() {
    assert_eq!(time_ns(0), 4_096);
    assert_eq!(time_ns(20), 4_294_967_296);
    assert_eq!(time_ns(31), 8_796_093_022_208);
    assert_eq!(time_ns(0xe0), 4_096);
}

proptest! {
    #[test]
    fn parsed_emitted_and_parsed_again_is_the_same(bytes in any_body(), index in 0..SENT.len()) {
        let header = send(SENT[index]);
        let Ok(message) = CmMessage::parse(&header, &bytes) else { return Ok(()) };
        let mut mad = [0x5a; LEN];
        message.emit(header.transaction_id, &mut mad);
        prop_assert_eq!(CmMessage::parse(&header, &mad[header::LEN..]), Ok(message));
    }
}

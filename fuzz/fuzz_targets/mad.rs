//! Fuzzes the parsers of the connection manager's MADs and of each of their parts with arbitrary bytes. A
//! parsed value must emit the bytes that it was parsed from, except for the bits that are drawn as reserved.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_wire::mad::{
    CmMessage, LEN, class_port_info, drep, dreq, header, ip_cm, mra, path, rej, rep, req, rtu, sidr_rep,
    sidr_req,
};

/// Parses the bytes, emits the value over them, and compares. The pairs are a byte's offset and its ignored
/// bits.
macro_rules! comes_back {
    ($part:ident, $bytes:expr $(, $at:literal & $bits:literal)*) => {{
        let bytes: &[u8] = $bytes;
        if let Ok(view) = $part::View::new(bytes) {
            let value = $part::Repr::parse(&view);
            let mut out = bytes.to_vec();
            value.emit(&mut out);
            assert_eq!(out, without(bytes, &[$(($at, $bits)),*]));
            assert_eq!($part::Repr::parse(&$part::View::new(&out).expect("the emitted bytes parse")), value);
            assert!(!value.to_string().is_empty());
        }
    }};
}

fn without(bytes: &[u8], reserved: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    reserved.iter().for_each(|(at, bits)| bytes[*at] &= !bits);
    bytes
}

/// Checks that a parsed value is emitted and parsed as the same value. Ignored bytes become zeros.
fn value_comes_back(bytes: &[u8]) {
    if let Ok(view) = ip_cm::View::new(bytes) {
        let value = ip_cm::Repr::parse(&view);
        let mut out = [0x5a; ip_cm::LEN];
        value.emit(&mut out);
        assert_eq!(ip_cm::Repr::parse(&ip_cm::View::new(&out).expect("the emitted bytes parse")), value);
    }
    if let Ok(view) = class_port_info::View::new(bytes) {
        let value = class_port_info::Repr::parse(&view);
        let mut out = [0x5a; class_port_info::LEN];
        value.emit(&mut out);
        assert_eq!((&out[..8], &out[8..]), (&bytes[..8], &[0; 64][..]));
    }
}

/// Checks that a whole MAD is the same after parsing, emitting and parsing, and that it is emitted to the
/// same bytes each time.
fn message_comes_back(bytes: &[u8]) {
    let Ok(view) = header::View::new(bytes) else { return };
    let header = header::Repr::parse(&view);
    let Ok(message) = CmMessage::parse(&header, &bytes[header::LEN..]) else { return };
    let [mut once, mut twice] = [[0x5a; LEN], [0xa5; LEN]];
    message.emit(header.transaction_id, &mut once);
    let written = header::Repr::parse(&header::View::new(&once).expect("the emitted bytes parse"));
    let again = CmMessage::parse(&written, &once[header::LEN..]).expect("the emitted bytes parse");
    assert_eq!(again, message);
    again.emit(written.transaction_id, &mut twice);
    assert_eq!(once, twice);
}

fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else { return };
    match which % 14 {
        0 => comes_back!(header, bytes, 18 & 0xff, 19 & 0xff),
        1 => comes_back!(
            req,
            bytes,
            4 & 0xff,
            5 & 0xff,
            6 & 0xff,
            7 & 0xff,
            24 & 0xff,
            25 & 0xff,
            26 & 0xff,
            27 & 0xff,
            90 & 0x0f,
            91 & 0xc0,
            94 & 0x07,
            95 & 0x07,
            134 & 0x0f,
            135 & 0xc0,
            138 & 0x07,
            139 & 0x07
        ),
        2 => comes_back!(mra, bytes, 8 & 0x3f, 9 & 0x07),
        3 => comes_back!(rej, bytes, 8 & 0x3f, 9 & 0x01),
        4 => comes_back!(rep, bytes, 15 & 0xff, 19 & 0xff, 23 & 0xff, 27 & 0x0f),
        5 => comes_back!(rtu, bytes),
        6 => comes_back!(dreq, bytes, 11 & 0xff),
        7 => comes_back!(drep, bytes),
        8 => comes_back!(sidr_req, bytes, 6 & 0xff, 7 & 0xff),
        9 => comes_back!(sidr_rep, bytes, 6 & 0xff, 7 & 0xff, 11 & 0xff),
        10 => comes_back!(path, bytes, 38 & 0x0f, 39 & 0xc0, 42 & 0x07, 43 & 0x07),
        11 => value_comes_back(bytes),
        _ => message_comes_back(bytes),
    }
});

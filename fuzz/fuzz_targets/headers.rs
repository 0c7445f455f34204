//! Fuzzes each header parser alone with arbitrary bytes. A parsed value must emit the bytes that it was
//! parsed from, except for the bits that `docs/reference/wire/frames.md` draws as reserved.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_wire::irn::{fetch, message, sack};
use remora_wire::{
    aeth, atomic_ack, atomic_eth, bth, deth, ethernet, icrc, ieth, immdt, ipv4, ipv6, reth, udp, xrceth,
};

/// Parses the bytes, emits the value over them, and compares. The pairs are a byte's offset and its ignored
/// bits.
macro_rules! comes_back {
    ($header:ident, $bytes:expr $(, $at:literal & $bits:literal)*) => {{
        let bytes: &[u8] = $bytes;
        if let Ok(view) = $header::View::new(bytes) {
            let value = $header::Repr::parse(&view);
            let mut out = bytes.to_vec();
            value.emit(&mut out);
            assert_eq!(out, without(bytes, &[$(($at, $bits)),*]));
            assert_eq!($header::Repr::parse(&$header::View::new(&out).expect("the emitted bytes parse")), value);
            assert!(!value.to_string().is_empty());
        }
    }};
}

fn without(bytes: &[u8], reserved: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    reserved.iter().for_each(|(at, bits)| bytes[*at] &= !bits);
    bytes
}

/// Checks that the view reports a wrong checksum, and that an emitted checksum is right.
fn ipv4_comes_back(bytes: &[u8]) {
    let Ok(view) = ipv4::View::new(bytes) else { return };
    let value = ipv4::Repr::parse(&view);
    let mut out = bytes.to_vec();
    value.emit(&mut out);
    let written = ipv4::View::new(&out).expect("the emitted bytes parse");
    assert!(written.checksum_ok() && ipv4::Repr::parse(&written) == value);
    // Ones' complement has two zeros; the emitted checksum is the one of zero bits.
    let other_zero = bytes[10..12] == [0xff; 2] && out[10..12] == [0; 2];
    assert_eq!(view.checksum_ok(), out == bytes || other_zero);
    assert!(!value.to_string().is_empty());
}

fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else { return };
    match which % 17 {
        0 => comes_back!(ethernet, bytes),
        1 => ipv4_comes_back(bytes),
        2 => comes_back!(ipv6, bytes),
        3 => comes_back!(udp, bytes),
        4 => comes_back!(bth, bytes),
        5 => comes_back!(deth, bytes, 4 & 0xff),
        6 => comes_back!(reth, bytes),
        7 => comes_back!(aeth, bytes),
        8 => comes_back!(atomic_eth, bytes),
        9 => comes_back!(atomic_ack, bytes),
        10 => comes_back!(immdt, bytes),
        11 => comes_back!(ieth, bytes),
        12 => comes_back!(xrceth, bytes, 0 & 0xff),
        13 => comes_back!(fetch, bytes, 0 & 0xff),
        14 => comes_back!(message, bytes, 0 & 0xff),
        15 => comes_back!(sack, bytes, 0 & 0xff),
        _ => assert_eq!(icrc::read(bytes).is_some(), bytes.len() >= icrc::LEN),
    }
});

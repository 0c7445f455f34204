//! Fuzzes the packet parser from the BTH to the ICRC. An accepted packet must emit the same bytes, except
//! for reserved bits and padding, which are sent as zeros. Between peers with IRN the payload begins with
//! additional headers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_wire::irn::{self, Additions};
use remora_wire::{Packet, icrc, packet};

/// Emits the packet and appends the old ICRC.
fn written(packet: &Packet<'_>, trailer: &[u8]) -> Vec<u8> {
    let mut out = vec![0x5a; packet.buffer_len()];
    let end = packet.emit(&mut out);
    assert_eq!(end + icrc::LEN, out.len());
    out[end..].copy_from_slice(trailer);
    out
}

/// Clears the reserved bits of the bytes.
fn without_reserved(packet: &Packet<'_>, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut at = remora_wire::bth::LEN;
    if packet.ext.xrceth.is_some() {
        bytes[at] = 0;
        at += remora_wire::xrceth::LEN;
    }
    if packet.ext.deth.is_some() {
        bytes[at + 4] = 0;
    }
    let end = bytes.len() - icrc::LEN;
    bytes[end - usize::from(packet.bth.pad)..end].fill(0);
    bytes
}

fn additions(view: &packet::View<'_>) {
    let Ok((found, rest)) = Additions::split(view) else { return };
    let syndrome = view.aeth().map(|aeth| aeth.syndrome);
    assert!(found.fit(view.bth.opcode(), syndrome) && found.len() <= irn::MAX_LEN);
    let mut out = view.payload.to_vec();
    assert_eq!(found.emit(&mut out), found.len());
    assert_eq!(&view.payload[found.len()..], rest);
    assert_eq!(&out[found.len()..], rest);
    // Emitting and parsing a packet gives the same packet.
    let again = Packet { bth: view.bth.repr(), ext: view.ext(), payload: &out };
    let bytes = written(&again, &[0; icrc::LEN]);
    let again = packet::View::new(&bytes).expect("the emitted bytes parse");
    assert_eq!(Additions::split(&again), Ok((found, rest)));
}

fuzz_target!(|data: &[u8]| {
    let view = packet::View::new(data);
    let parsed = Packet::parse(data);
    assert_eq!(view.is_ok(), parsed.is_ok());
    let (Ok(view), Ok(parsed)) = (view, parsed) else { return };
    assert_eq!((view.bth.repr(), view.ext(), view.payload), (parsed.bth, parsed.ext, parsed.payload));
    let trailer = &data[data.len() - icrc::LEN..];
    let bytes = written(&parsed, trailer);
    assert_eq!(bytes, without_reserved(&parsed, data));
    assert_eq!(Packet::parse(&bytes), Ok(parsed));
    assert!(!parsed.to_string().is_empty());
    additions(&view);
});

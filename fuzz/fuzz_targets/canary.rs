//! The canary, a target that must fail: after a real parser comes a check that one packet in 2^40 fails. If
//! a run of half a minute does not find that packet, the fuzzer does not work.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_wire::{Opcode, Packet, reth};

fuzz_target!(|data: &[u8]| {
    let Ok(packet) = Packet::parse(data) else { return };
    let planted = |reth: reth::Repr| reth.dma_len == 0x5e11_ab1e;
    if packet.bth.opcode == Opcode::RC_RDMA_WRITE_ONLY && packet.ext.reth.is_some_and(planted) {
        panic!("the canary sings: this packet was planted");
    }
});

//! Fuzzes the other services with the checks of `responder`: unreliable connections, datagrams, extended
//! reliable connections, and each of them with a shared receive queue.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::peer::Input;
use remora_fuzz::testbed::Kind;

fuzz_target!(|data: &[u8]| remora_fuzz::run(data, |(kind, input): (Kind, Input)| input.run(kind)));

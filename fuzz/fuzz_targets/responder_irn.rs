//! Fuzzes reliable connections with IRN by hostile packets, with the checks of `responder`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::peer::Input;
use remora_fuzz::testbed::Kind;

fuzz_target!(|data: &[u8]| remora_fuzz::run(data, |input: Input| input.run(Kind::Irn)));

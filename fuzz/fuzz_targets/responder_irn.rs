//! As `responder`, against reliable connections over IRN.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::peer::Input;
use remora_fuzz::testbed::Kind;

fuzz_target!(|data: &[u8]| remora_fuzz::run(data, |input: Input| input.run(Kind::Irn)));

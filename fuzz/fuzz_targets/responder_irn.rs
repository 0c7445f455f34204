//! As `responder`, against reliable connections over IRN.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::testbed::Kind;
use remora_fuzz::peer::Input;

fuzz_target!(|input: Input| input.run(Kind::Irn));

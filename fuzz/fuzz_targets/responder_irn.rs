//! As `responder`, against reliable connections over IRN.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::cast::Kind;
use remora_fuzz::play::Play;

fuzz_target!(|play: Play| play.run(Kind::Irn));

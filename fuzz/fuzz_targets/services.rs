//! As `responder`, against the other services: unreliable connections, datagrams, extended reliable
//! connections, and each with a shared receive queue.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::cast::Kind;
use remora_fuzz::play::Play;

fuzz_target!(|input: (Kind, Play)| input.1.run(input.0));

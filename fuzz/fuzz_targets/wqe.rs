//! Any bytes in the queues of a program: the NIC neither panics nor hangs, and touches and sends only what
//! the program's keys open. The peer, whose program is sound, gets the same messages as from a sound one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::rings::Input;

fuzz_target!(|data: &[u8]| remora_fuzz::run(data, |input: Input| input.run()));

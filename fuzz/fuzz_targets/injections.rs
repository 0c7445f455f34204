//! Fuzzes the offloads of this repository with messages of a hostile client. Their effects must stay within
//! the client's grant, cost no more than a message may, and not disturb another client.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::injections::Input;

fuzz_target!(|data: &[u8]| remora_fuzz::run(data, |input: Input| input.run()));

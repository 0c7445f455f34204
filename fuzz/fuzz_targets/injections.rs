//! Messages of a hostile client to the offloads that ship. Their effects stay within the client's grant, cost
//! no more than a message may, and hurt no other client.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::injections::Input;

fuzz_target!(|data: &[u8]| remora_fuzz::run(data, |input: Input| input.run()));

//! Messages of a hostile client to the offloads that ship: whatever it sends stays within what was granted, costs no more than a message
//! may, and hurts no other client.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::injections::Play;

fuzz_target!(|play: Play| play.run());

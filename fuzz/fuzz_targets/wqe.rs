//! Fuzzes a NIC with arbitrary bytes in a program's queues. The NIC must not panic or hang, and may access
//! and send only memory that the program's keys open. The peer, whose program is correct, receives the same
//! messages as from a correct program.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::rings::Input;

fuzz_target!(|data: &[u8]| remora_fuzz::run(data, |input: Input| input.run()));

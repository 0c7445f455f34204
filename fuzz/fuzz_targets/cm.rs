//! Fuzzes a connection manager with arbitrary messages of peers, calls of programs and passing time. All
//! invariants must hold, each program receives the events of its ID in order, and no resource is left at the
//! end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::cm::Input;

fuzz_target!(|data: &[u8]| remora_fuzz::run(data, |input: Input| input.run()));

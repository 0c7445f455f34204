//! Peers of a connection manager that send anything, programs that call anything, time that passes: all
//! invariants hold, each program hears of its id in order, and nothing is left in the end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::cm::Input;

fuzz_target!(|data: &[u8]| remora_fuzz::run(data, |input: Input| input.run()));

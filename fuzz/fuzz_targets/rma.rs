//! A rude peer of 1RMA that has keys, and programs that write any bytes into their portal. Memory changes and
//! leaves by true messages only, each command ends once, and the window is whole in the end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::rma::Input;

fuzz_target!(|input: Input| input.run());

//! Fuzzes kernels with hostile packets and parameters. Kernels may access only granted memory, write no more
//! than fits, and must not leak lanes or answer buffers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::strom::Input;

fuzz_target!(|data: &[u8]| remora_fuzz::run(data, |input: Input| input.run()));

//! Hostile packets and parameters for kernels. Kernels touch and read only granted memory, write no more than
//! fits, and leak neither lanes nor answer memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::strom::Input;

fuzz_target!(|data: &[u8]| remora_fuzz::run(data, |input: Input| input.run()));

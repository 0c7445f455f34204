//! Hostile packets and parameters for kernels: they touch and see nothing but what was granted, write no more than there is
//! room for, and lose neither lanes nor room for answers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::strom::Play;

fuzz_target!(|play: Play| play.run());

//! Hostile packets of PRISM against reliable connections over IRN. Memory without a key stays unchanged and
//! unread, as does the scratch memory of another connection. No buffer is lost or given twice.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::prism::Input;
use remora_fuzz::testbed::Kind;

fuzz_target!(|data: &[u8]| remora_fuzz::run(data, |input: Input| input.run(Kind::Irn)));

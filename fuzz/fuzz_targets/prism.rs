//! Fuzzes reliable connections with go-back-N by hostile PRISM packets. Memory without a key must stay
//! unchanged and unread, also the scratch memory of another connection. No buffer may be lost or allocated
//! twice.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::prism::Input;
use remora_fuzz::testbed::Kind;

fuzz_target!(|data: &[u8]| remora_fuzz::run(data, |input: Input| input.run(Kind::Rc)));

//! Hostile packets against reliable connections that go back N. Protected memory stays unchanged and unread,
//! each honest work request ends once, and queue pairs work afterwards.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::peer::Input;
use remora_fuzz::testbed::Kind;

fuzz_target!(|data: &[u8]| remora_fuzz::run(data, |input: Input| input.run(Kind::Rc)));

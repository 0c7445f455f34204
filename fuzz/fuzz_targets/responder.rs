//! Fuzzes reliable connections with go-back-N by hostile packets. Protected memory must stay unchanged and
//! unread, each honest work request completes once, and the queue pairs work after a reset.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::peer::Input;
use remora_fuzz::testbed::Kind;

fuzz_target!(|data: &[u8]| remora_fuzz::run(data, |input: Input| input.run(Kind::Rc)));

//! Hostile packets of PRISM against reliable connections that go back N. Memory without a key stays unchanged
//! and unread, as does the scratch memory of another connection. No buffer is lost or given twice.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::cast::Kind;
use remora_fuzz::prism::Play;

fuzz_target!(|play: Play| play.run(Kind::Rc));

//! Hostile packets of PRISM against reliable connections over IRN: what no key gives stays as it is and unseen, the scratch
//! memory of another connection too, and no buffer is lost or given twice.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::cast::Kind;
use remora_fuzz::prism::Play;

fuzz_target!(|play: Play| play.run(Kind::Irn));

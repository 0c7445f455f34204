//! Fuzzes 1RMA by a peer with keys that follows no rule, and by programs that write arbitrary bytes into
//! their portal. Memory may change and be sent only by authentic messages, each command ends once, and the
//! solicitation window is complete at the end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fuzz::rma::Input;

fuzz_target!(|input: Input| input.run());

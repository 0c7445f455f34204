//! The messages of connection set-up, which any stranger may send to a listener: taken or refused, and what is taken writes
//! the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_host::connect::Message;

/// The bytes of IRN's reach in a whole message.
const REACH: std::ops::Range<usize> = 80..84;

fuzz_target!(|data: &[u8]| {
    let Ok(message) = Message::parse(data) else { return };
    let bytes = message.emit();
    let again = Message::parse(&bytes).expect("our own bytes");
    if let Message::Reject(_) = message {
        // Words for people are cleaned of what upsets a terminal, and cut: the second time nothing is left to do.
        assert_eq!(again.emit(), bytes);
    } else {
        assert_eq!(again, message);
        let mut expected = data.to_vec();
        if let Message::Request(hello) | Message::Accept(hello) = message
            && hello.irn_reach == 0
        {
            // What no extension speaks of is ignored, and sent as zeros.
            expected[REACH].fill(0);
        }
        assert_eq!(bytes, expected);
    }
});

//! The messages of connection set-up, which any stranger may send to a listener: taken or refused. A taken
//! one emits the same bytes.
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
        // Text for people is cut, and cleaned of control characters: a second cleaning changes nothing.
        assert_eq!(again.emit(), bytes);
    } else {
        assert_eq!(again, message);
        let mut expected = data.to_vec();
        if let Message::Request(hello) | Message::Accept(hello) = message
            && hello.irn_reach == 0
        {
            // Bytes that no extension uses are ignored, and sent as zeros.
            expected[REACH].fill(0);
        }
        assert_eq!(bytes, expected);
    }
});

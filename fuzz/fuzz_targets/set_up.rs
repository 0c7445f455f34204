//! Fuzzes the parser of connection set-up messages, which any host can send to a listener. An accepted
//! message must emit the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_host::connect::Message;

/// The bytes of a whole message that hold IRN's reach.
const REACH: std::ops::Range<usize> = 80..84;

fuzz_target!(|data: &[u8]| {
    let Ok(message) = Message::parse(data) else { return };
    let bytes = message.emit();
    let again = Message::parse(&bytes).expect("the emitted bytes parse");
    if let Message::Reject(_) = message {
        // Rejection texts are cut and control characters removed; a second pass changes nothing.
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

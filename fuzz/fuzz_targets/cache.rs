//! Fuzzes `remora serve cache` with arbitrary client bytes. The answers must not depend on how the network
//! splits the bytes, the output is bounded, and all memory is freed at the end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_memory::{Bytes, Key};
use remora_store::Registered;
use remora_store::cache::{Cache, Config, MAX_VALUE, MIN_MEMORY, OUTPUT, Session};
use remora_transport::Instant;

const NOW: Instant = Instant(1_700_000_000_000_000_000);

/// Returns a cache and all its answers to one client. The client's bytes arrive in pieces of `piece` bytes,
/// and the client reads `read` bytes at a time.
fn answers(bytes: &[u8], piece: usize, read: usize) -> (Cache, Vec<u8>) {
    let memory =
        Registered { bytes: Bytes::heap(MIN_MEMORY).expect("little memory"), addr: 0, key: Key::new(0) };
    let config = Config {
        items: 4,
        hash_seed: 1,
        version: "1.6.18",
        remora: "0.1.0",
        pid: 1,
        connections: 1,
        idle_timeout: 0,
        shutdown: true,
    };
    let mut cache = Cache::new(config, memory, NOW);
    let mut session = Session::new(&mut cache);
    let mut all = Vec::new();
    let mut out = Vec::with_capacity(OUTPUT);
    let mut at = 0;
    let mut end = 0;
    loop {
        end = bytes.len().min(end + piece);
        let taken = session.run(&mut cache, NOW, &bytes[at..end], &mut out);
        assert!(out.len() <= OUTPUT, "{} bytes of output", out.len());
        at += taken;
        if taken == 0 && out.is_empty() && end == bytes.len() && !session.is_busy() {
            session.end(&mut all);
            session.close(&mut cache);
            return (cache, all);
        }
        let left = out.len().min(read);
        all.extend(out.drain(..left));
    }
}

fuzz_target!(|data: &[u8]| {
    let [piece, read, bytes @ ..] = data else { return };
    let (_, whole) = answers(bytes, usize::MAX / 2, usize::MAX);
    let (mut cache, pieces) = answers(bytes, usize::from(*piece) + 1, usize::from(*read) * 64 + 1);
    assert!(whole == pieces, "{:?} and {:?}", whole.escape_ascii(), pieces.escape_ascii());
    // The longest value fits after everything else has been freed.
    let mut session = Session::new(&mut cache);
    let mut out = Vec::new();
    session.run(&mut cache, NOW, format!("set a 0 0 {MAX_VALUE}\r\n").as_bytes(), &mut out);
    session.run(&mut cache, NOW, &vec![b'v'; MAX_VALUE], &mut out);
    session.run(&mut cache, NOW, b"\r\n", &mut out);
    assert_eq!(out, b"STORED\r\n");
});

//! The session's part of `stats`.

use super::Session;
use crate::cache::dump::Dump;
use crate::cache::stats::{Listing, stat};
use crate::cache::{Cache, Counters};
use remora_transport::Instant;

impl Session {
    /// Executes `stats` of a kind, with up to two arguments.
    pub(super) fn stats(
        &mut self,
        kind: &[u8],
        rest: [&[u8]; 2],
        cache: &mut Cache,
        now: Instant,
        out: &mut Vec<u8>,
    ) {
        match kind {
            b"" => cache.general(now, out),
            b"settings" => cache.settings(out),
            b"items" => return self.list(Listing::ITEMS),
            b"slabs" => return self.list(Listing::SLABS),
            b"sizes" => stat(out, "sizes_status", "disabled"),
            b"sizes_enable" => {
                stat(out, "sizes_status", "error");
                return stat(out, "sizes_error", "stats items counts sizes by class");
            }
            b"sizes_disable" => return stat(out, "sizes_status", "disabled"),
            b"cachedump" => match Dump::cache(rest) {
                Ok(dump) => return self.dump(dump),
                Err(message) => return self.answer(message, out),
            },
            b"reset" => {
                cache.counters = Counters::default();
                cache.items.reset();
                return self.answer("RESET", out);
            }
            _ => return self.answer("ERROR", out),
        }
        out.extend_from_slice(b"END\r\n");
    }
}

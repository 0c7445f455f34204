//! What `stats` answers.

use super::{Cache, MAX_VALUE};
use std::io::Write as _;
use transport::Instant;

impl Cache {
    /// Appends the answer to `stats WHICH`.
    pub(super) fn stats(&mut self, which: &[u8], now: Instant, out: &mut Vec<u8>) {
        match which {
            b"" => self.general(now, out),
            b"settings" => self.settings(out),
            // Memory is not cut into classes here.
            b"items" | b"slabs" | b"sizes" => {}
            b"reset" => {
                self.counters = super::Counters::default();
                *self.items.gone() = super::items::Gone::default();
                return out.extend_from_slice(b"RESET\r\n");
            }
            _ => return out.extend_from_slice(b"ERROR\r\n"),
        }
        out.extend_from_slice(b"END\r\n");
    }

    fn general(&mut self, now: Instant, out: &mut Vec<u8>) {
        const SECOND: u64 = 1_000_000_000;
        let (gone, counters) = (*self.items.gone(), self.counters);
        stat(out, "pid", self.config.pid);
        stat(out, "uptime", now.since(self.started) / SECOND);
        stat(out, "time", now.0 / SECOND);
        stat(out, "version", self.config.version);
        stat(out, "pointer_size", usize::BITS);
        stat(out, "max_connections", self.config.connections);
        stat(out, "curr_connections", self.sessions);
        stat(out, "total_connections", counters.total_connections);
        stat(out, "rejected_connections", counters.rejected_connections);
        stat(out, "cmd_get", counters.cmd_get);
        stat(out, "cmd_set", counters.cmd_set);
        stat(out, "cmd_flush", counters.cmd_flush);
        stat(out, "cmd_touch", counters.cmd_touch);
        stat(out, "get_hits", counters.get_hits);
        stat(out, "get_misses", counters.get_misses);
        stat(out, "delete_misses", counters.delete_misses);
        stat(out, "delete_hits", counters.delete_hits);
        stat(out, "incr_misses", counters.incr_misses);
        stat(out, "incr_hits", counters.incr_hits);
        stat(out, "decr_misses", counters.decr_misses);
        stat(out, "decr_hits", counters.decr_hits);
        stat(out, "cas_misses", counters.cas_misses);
        stat(out, "cas_hits", counters.cas_hits);
        stat(out, "cas_badval", counters.cas_badval);
        stat(out, "touch_hits", counters.touch_hits);
        stat(out, "touch_misses", counters.touch_misses);
        stat(out, "store_too_large", counters.store_too_large);
        stat(out, "store_no_memory", counters.store_no_memory);
        stat(out, "bytes_read", counters.bytes_read);
        stat(out, "bytes_written", counters.bytes_written);
        stat(out, "limit_maxbytes", self.items.memory());
        stat(out, "threads", 1);
        stat(out, "bytes", self.items.bytes());
        stat(out, "curr_items", self.items.len());
        stat(out, "total_items", counters.total_items);
        stat(out, "evictions", gone.evicted);
        stat(out, "reclaimed", gone.reclaimed);
    }

    fn settings(&self, out: &mut Vec<u8>) {
        stat(out, "maxbytes", self.items.memory());
        stat(out, "maxconns", self.config.connections);
        stat(out, "maxitems", self.config.items);
        stat(out, "item_size_max", MAX_VALUE);
        stat(out, "evictions", "on");
        stat(out, "cas_enabled", "yes");
        stat(out, "num_threads", 1);
        stat(out, "binding_protocol", "ascii");
    }
}

fn stat(out: &mut Vec<u8>, name: &str, value: impl core::fmt::Display) {
    write!(out, "STAT {name} {value}\r\n").expect("a Vec takes bytes");
}

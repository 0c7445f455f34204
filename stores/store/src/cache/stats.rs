//! The answers to `stats`.

use super::classes::{CLASSES, largest};
use super::{Cache, MAX_VALUE};
use remora_transport::Instant;
use std::io::Write as _;

/// The statistics of all classes, one class after the other.
#[derive(Copy, Clone)]
pub(crate) struct Listing {
    slabs: bool,
    class: usize,
}

impl Listing {
    /// The list of `stats items`.
    pub(crate) const ITEMS: Listing = Listing { slabs: false, class: 0 };
    /// The list of `stats slabs`.
    pub(crate) const SLABS: Listing = Listing { slabs: true, class: 0 };

    /// Reports one class. Returns true after the last one.
    pub(super) fn step(&mut self, cache: &Cache, now: Instant, out: &mut Vec<u8>) -> bool {
        self.class += 1;
        if self.class < CLASSES {
            if self.slabs {
                cache.slab(self.class, out)
            } else {
                cache.class(self.class, now, out)
            }
            return false;
        }
        if self.slabs {
            let active = cache.items.classes().iter().filter(|class| class.number > 0).count();
            stat(out, "active_slabs", active);
            stat(out, "total_malloced", cache.items.taken());
        }
        out.extend_from_slice(b"END\r\n");
        true
    }
}

impl Cache {
    /// Reports `stats items` of one class, if the class has or had items.
    fn class(&self, class: usize, now: Instant, out: &mut Vec<u8>) {
        let figures = self.items.classes()[class];
        let counts = figures.counts;
        if figures.number == 0 && counts == super::classes::Counts::default() {
            return;
        }
        for (name, value) in [
            ("number", figures.number),
            // All classes share one order of use.
            ("age", self.items.oldest(now).into()),
            ("mem_requested", figures.requested),
            ("evicted", counts.evicted),
            ("evicted_nonzero", counts.evicted_nonzero),
            ("evicted_time", counts.evicted_time),
            ("outofmemory", counts.outofmemory),
            ("reclaimed", counts.reclaimed),
            ("expired_unfetched", counts.expired_unfetched),
            ("evicted_unfetched", counts.evicted_unfetched),
            ("crawler_reclaimed", counts.crawler_reclaimed),
        ] {
            write!(out, "STAT items:{class}:{name} {value}\r\n").expect("a Vec takes bytes");
        }
    }

    /// Reports `stats slabs` of one class, with items as chunks. No chunk is free, since memory is not
    /// divided into chunks.
    fn slab(&self, class: usize, out: &mut Vec<u8>) {
        let figures = self.items.classes()[class];
        let counts = figures.counts;
        if figures.number == 0 && counts == super::classes::Counts::default() {
            return;
        }
        for (name, value) in [
            ("chunk_size", largest(class) as u64),
            ("used_chunks", figures.number),
            ("mem_requested", figures.requested),
            ("get_hits", counts.get_hits),
            ("cmd_set", counts.cmd_set),
            ("delete_hits", counts.delete_hits),
            ("incr_hits", counts.incr_hits),
            ("decr_hits", counts.decr_hits),
            ("cas_hits", counts.cas_hits),
            ("cas_badval", counts.cas_badval),
            ("touch_hits", counts.touch_hits),
        ] {
            write!(out, "STAT {class}:{name} {value}\r\n").expect("a Vec takes bytes");
        }
    }

    pub(super) fn general(&mut self, now: Instant, out: &mut Vec<u8>) {
        const SECOND: u64 = 1_000_000_000;
        let gone = self.items.gone();
        let counters = self.counters;
        stat(out, "pid", self.config.pid);
        stat(out, "uptime", now.since(self.started) / SECOND);
        stat(out, "time", now.0 / SECOND);
        stat(out, "version", self.config.version);
        stat(out, "remora", self.config.remora);
        stat(out, "pointer_size", usize::BITS);
        stat(out, "max_connections", self.config.connections);
        stat(out, "curr_connections", self.sessions);
        stat(out, "total_connections", counters.total_connections);
        stat(out, "rejected_connections", counters.rejected_connections);
        stat(out, "rejected_binary", counters.rejected_binary);
        stat(out, "rejected_http", counters.rejected_http);
        stat(out, "rejected_tls", counters.rejected_tls);
        stat(out, "idle_kicks", counters.idle_kicks);
        stat(out, "cmd_get", counters.cmd_get);
        stat(out, "cmd_set", counters.cmd_set);
        stat(out, "cmd_flush", counters.cmd_flush);
        stat(out, "cmd_touch", counters.cmd_touch);
        stat(out, "cmd_meta", counters.cmd_meta);
        stat(out, "get_hits", counters.get_hits);
        stat(out, "get_misses", counters.get_misses);
        stat(out, "get_expired", counters.get_expired);
        stat(out, "get_flushed", counters.get_flushed);
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
        // Clients beyond the limit get an error, but the listener is never closed.
        stat(out, "accepting_conns", 1);
        stat(out, "listen_disabled_num", 0);
        stat(out, "time_in_listen_disabled_us", 0);
        stat(out, "threads", 1);
        stat(out, "lru_crawler_running", u8::from(self.items.is_crawling()));
        stat(out, "lru_crawler_starts", self.crawls_started);
        stat(out, "bytes", self.items.bytes());
        stat(out, "curr_items", self.items.len());
        stat(out, "total_items", counters.total_items);
        stat(out, "expired_unfetched", gone.expired_unfetched);
        stat(out, "evicted_unfetched", gone.evicted_unfetched);
        stat(out, "evictions", gone.evicted);
        stat(out, "reclaimed", gone.reclaimed);
        stat(out, "crawler_reclaimed", gone.crawled);
        stat(out, "crawler_items_checked", gone.looked_at);
        // Items are never locked in place because a client uses them.
        stat(out, "lrutail_reflocked", 0);
    }

    pub(super) fn settings(&self, out: &mut Vec<u8>) {
        stat(out, "maxbytes", self.items.memory());
        stat(out, "maxconns", self.config.connections);
        stat(out, "maxitems", self.config.items);
        stat(out, "idle_timeout", self.config.idle_timeout);
        stat(out, "shutdown_command", yes(self.config.shutdown));
        stat(out, "lru_crawler", yes(self.crawls));
        stat(out, "auth_enabled_sasl", "no");
        stat(out, "auth_enabled_ascii", "no");
        stat(out, "item_size_max", MAX_VALUE);
        stat(out, "evictions", "on");
        stat(out, "cas_enabled", "yes");
        stat(out, "num_threads", 1);
        stat(out, "binding_protocol", "ascii");
    }
}

fn yes(whether: bool) -> &'static str {
    if whether { "yes" } else { "no" }
}

pub(crate) fn stat(out: &mut Vec<u8>, name: &str, value: impl core::fmt::Display) {
    write!(out, "STAT {name} {value}\r\n").expect("a Vec takes bytes");
}

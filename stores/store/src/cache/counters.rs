//! The counters of a cache, by memcached's names.

/// The counters since the start, or since `stats reset`.
#[derive(Copy, Clone, Default, Debug)]
#[allow(
    missing_docs,
    reason = "the names are memcached's, and its protocol.txt says what each counts; docs/guides/cache.md has the others"
)]
pub struct Counters {
    pub total_connections: u64,
    pub rejected_connections: u64,
    pub rejected_binary: u64,
    pub rejected_http: u64,
    pub rejected_tls: u64,
    pub idle_kicks: u64,
    pub cmd_get: u64,
    pub cmd_set: u64,
    pub cmd_flush: u64,
    pub cmd_touch: u64,
    pub cmd_meta: u64,
    pub get_hits: u64,
    pub get_misses: u64,
    pub get_expired: u64,
    pub get_flushed: u64,
    pub delete_hits: u64,
    pub delete_misses: u64,
    pub incr_hits: u64,
    pub incr_misses: u64,
    pub decr_hits: u64,
    pub decr_misses: u64,
    pub cas_hits: u64,
    pub cas_misses: u64,
    pub cas_badval: u64,
    pub touch_hits: u64,
    pub touch_misses: u64,
    pub store_too_large: u64,
    pub store_no_memory: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub total_items: u64,
}

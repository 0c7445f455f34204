//! Administrative commands: `lru_crawler`, `cache_memlimit`, `shutdown`.

use super::command::unsigned;
use super::dump::{self, Dump};
use super::session::Session;
use super::{Cache, MIN_MEMORY};

const MEBIBYTE: usize = 1 << 20;

impl Session {
    /// Executes `lru_crawler`: searches for dead items, or lists all items.
    pub(super) fn crawler(
        &mut self,
        action: &[u8],
        argument: Option<&[u8]>,
        cache: &mut Cache,
        out: &mut Vec<u8>,
    ) {
        let bad_class = "BADCLASS invalid class id";
        let answer = match (action, argument) {
            (b"enable" | b"disable", None) => {
                cache.crawls = action == b"enable";
                "OK"
            }
            (b"sleep", Some(word)) => match unsigned(word) {
                None => "CLIENT_ERROR bad command line format",
                Some(1_000_001..) => "CLIENT_ERROR sleep must be one second or less",
                Some(_) => "OK",
            },
            (b"tocrawl", Some(word)) if unsigned(word).is_none() => "CLIENT_ERROR bad command line format",
            (b"tocrawl", Some(_)) => "OK",
            (b"crawl" | b"metadump", Some(_)) if !cache.crawls => "CLIENT_ERROR lru crawler disabled",
            (b"crawl", Some(word)) => match dump::classes(word) {
                None => bad_class,
                Some(_) => {
                    cache.crawls_started += 1;
                    cache.items.crawl();
                    "OK"
                }
            },
            // As in memcached, a dump cannot follow answers that are not sent yet.
            (b"metadump", Some(_)) if !out.is_empty() => {
                "ERROR cannot pipeline other commands before metadump"
            }
            (b"metadump", Some(word)) => match Dump::meta(word) {
                None => bad_class,
                Some(dump) => {
                    cache.crawls_started += 1;
                    return self.dump(dump);
                }
            },
            _ => "ERROR",
        };
        self.answer(answer, out);
    }

    /// Executes the `shutdown` command.
    pub(super) fn shutdown(&mut self, mode: Option<&[u8]>, cache: &mut Cache, out: &mut Vec<u8>) {
        match mode {
            _ if !cache.config.shutdown => self.answer("ERROR: shutdown not enabled", out),
            None | Some(b"graceful") => {
                cache.ending = true;
                self.hang_up();
            }
            Some(_) => self.answer("CLIENT_ERROR invalid shutdown mode", out),
        }
    }
}

impl Cache {
    /// Executes `cache_memlimit`: limits the memory of keys and values, once later stores have freed the
    /// excess. Returns the answer.
    pub(super) fn limit(&mut self, megabytes: u64) -> &'static str {
        let bytes = usize::try_from(megabytes).ok().and_then(|megabytes| megabytes.checked_mul(MEBIBYTE));
        match bytes {
            Some(bytes) if bytes < MIN_MEMORY => "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 2m",
            Some(bytes) if self.items.limit(bytes) => "OK",
            _ => "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust",
        }
    }
}

const _: () = assert!(MIN_MEMORY == 2 * MEBIBYTE, "the answer names it");

//! Flow size distributions that papers on congestion control share, as lines of `bytes percent`. The numbers
//! are those of HPCC's traffic generator (commit 9f4be2a).

use super::distribution::{Cdf, CdfError, Point};

/// Web search at Microsoft, from DCTCP's paper.
pub(crate) const WEBSEARCH: &str = include_str!("tables/websearch.txt");
/// Hadoop at Facebook, 2015.
pub(crate) const FB_HDP: &str = include_str!("tables/fb_hdp.txt");
/// Storage at Alibaba, 2019.
pub(crate) const ALI_STORAGE: &str = include_str!("tables/ali_storage.txt");
/// RPCs at Google, 2008, from Homa's paper.
pub(crate) const GOOGLE_RPC: &str = include_str!("tables/google_rpc.txt");

/// Parses one of these tables.
pub(crate) fn cdf(table: &str) -> Result<Cdf, CdfError> {
    let number = |word: Option<&str>| word.and_then(|word| word.parse().ok()).unwrap_or(f64::NAN);
    let point = |line: &str| {
        let mut words = line.split_whitespace();
        Point { bytes: number(words.next()), percent: number(words.next()) }
    };
    Cdf::new(table.lines().map(point).collect())
}

//! Listings of all keys of a table: by calls, or by the client's own READs in designs without calls.

use std::time::Instant;

use remora_store::kv::prism::{Grant, Scan};
use remora_store::kv::{Cursor, Finished, Outcome, Page};

use super::client::Session;
use super::designs::{Classical, PrismDesign};
use super::session::{Found, PATIENCE, failed};
use crate::Result;
use crate::error::{bail, need};
use crate::post::registered;

/// Lists keys by calls, one page at a time.
///
/// # Errors
/// The server does not answer, or `report` returns an error.
pub(crate) fn by_calls<D: Classical>(session: &mut Session<D>, report: &mut Found<'_>) -> Result<()> {
    let mut cursor = Some(Cursor::START);
    while let Some(current) = cursor {
        let (next, keys) = session.one(|client, nic| client.list(current, nic), page)??;
        keys.iter().try_for_each(|key| report(key))?;
        cursor = next;
    }
    Ok(())
}

/// Returns the next cursor and the keys of a page.
pub(super) fn page(finished: &Finished<'_>) -> Result<(Option<Cursor>, Vec<Vec<u8>>)> {
    match finished.outcome {
        Outcome::Value(bytes) => {
            let page = need!(Page::parse(bytes), Peer, "the server answers a listing with something else");
            Ok((page.next, page.keys().map(<[u8]>::to_vec).collect()))
        }
        Outcome::Refused(refusal) => bail!(Refused, "the server refuses to list its keys: {refusal}"),
        Outcome::Failed(broken) => Err(failed(broken)),
        _ => bail!(Peer, "the server answers a listing with something else"),
    }
}

/// Lists keys by READs of the slots, and of the objects to which they point.
///
/// # Errors
/// The server's NIC does not answer, or `report` returns an error.
pub(crate) fn by_reads(session: &mut Session<PrismDesign>, report: &mut Found<'_>) -> Result<()> {
    let grant = Grant::decode(session.grant())?;
    let arena = session.allocate(Scan::arena_len(grant.max_key))?;
    let mut scan = Scan::new(&grant, registered(&arena))?;
    scan.start(&mut session.direct()).map_err(failed)?;
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut progress = Instant::now();
    while !scan.is_done() {
        let got = session.poll_beside(|completion, nic| {
            let ours = Scan::takes(completion);
            if ours {
                scan.complete(completion, &mut |key| keys.push(key.to_vec()), nic).map_err(failed)?;
            }
            Ok(ours)
        })?;
        keys.drain(..).try_for_each(|key| report(&key))?;
        match got {
            0 if progress.elapsed() > PATIENCE => bail!(Silent, "the server does not answer"),
            0 => {}
            _ => progress = Instant::now(),
        }
    }
    Ok(())
}

//! Explanations of errors on the standard error, if the variable `REMORA_EXPLAIN` requests them. Each kind
//! is printed once for a queue pair.

use remora_abi::device::IbvGid;
use remora_abi::objects::{IbvContext, IbvWc};
use remora_broker::environment;
use remora_verbs::Status;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fmt::Display;
use std::io::Write as _;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::address::ROCE_PORT;
use crate::context;
use crate::nic::Nic;
use crate::requests;

/// Environment variable that requests explanations.
const EXPLAIN: &str = "REMORA_EXPLAIN";
/// Maximum number of remembered queue pairs and of explained refusals of a process. Beyond it nothing is
/// printed.
const MOST: usize = 1024;
/// Bytes of a WRITE's first packet besides its payload: IP, UDP, BTH, RETH and ICRC.
const IPV4_HEADERS: u32 = 20 + 8 + 12 + 16 + 4;
const IPV6_HEADERS: u32 = 40 + 8 + 12 + 16 + 4;
/// `IBV_WC_SUCCESS` and `IBV_WC_WR_FLUSH_ERR`.
const SUCCESS: c_int = 0;
const FLUSHED: c_int = 5;

/// The explanations that were printed, and facts that explanations need.
#[derive(Default)]
struct Known {
    /// The peer of each queue pair.
    peers: BTreeMap<u32, RemoteQp>,
    /// The statuses that were explained, one bit each, by queue pair number.
    statuses: BTreeMap<u32, u64>,
    /// The last printed number of RNR waits, by queue pair number.
    waits: BTreeMap<u32, u32>,
    /// The calls and attributes whose refusal was explained.
    refused: Vec<(&'static str, String)>,
}

/// The peer that a queue pair was connected to.
#[derive(Copy, Clone)]
pub(crate) struct RemoteQp {
    ip: IpAddr,
    /// The own address, from which packets are sent.
    own: IpAddr,
    /// The number of the peer's queue pair.
    number: u32,
    /// The path MTU in bytes.
    path_mtu: u32,
}

impl RemoteQp {
    /// Creates the description from the GIDs of both ends.
    pub(crate) fn new(own: &IbvGid, peer: &IbvGid, number: u32, path_mtu: u32) -> RemoteQp {
        let [ip, own] = [peer, own].map(|gid| Ipv6Addr::from(gid.raw).to_canonical());
        RemoteQp { ip, own, number, path_mtu }
    }
}

fn known() -> MutexGuard<'static, Known> {
    static KNOWN: OnceLock<Mutex<Known>> = OnceLock::new();
    KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether explanations are requested.
pub(crate) fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| environment::is_set(EXPLAIN))
}

fn say(words: &str) {
    // An error means that the standard error is closed, so the text can be dropped.
    let _ = writeln!(std::io::stderr(), "remora: {words}");
}

/// Records the peer of a queue pair.
pub(crate) fn peer(qp: u32, peer: RemoteQp) {
    if !is_wanted() {
        return;
    }
    let mut known = known();
    // A new connection begins without waits.
    known.waits.remove(&qp);
    if known.peers.len() < MOST || known.peers.contains_key(&qp) {
        known.peers.insert(qp, peer);
    }
}

/// Removes a destroyed queue pair, whose number may be used anew.
pub(crate) fn forget(qp: u32) {
    if is_wanted() {
        let mut known = known();
        known.peers.remove(&qp);
        known.statuses.remove(&qp);
        known.waits.remove(&qp);
    }
}

/// Prints the most likely cause of an error completion. Flushed completions are skipped, because they follow
/// from another error.
#[cold]
pub(crate) fn completion(context: *mut IbvContext, completion: &IbvWc) {
    let status = completion.status;
    let qp = completion.qp_num;
    if status == SUCCESS || status == FLUSHED || !is_first(status, qp) {
        return;
    }
    let peer = known().peers.get(&qp).copied();
    let peer_name = match peer {
        Some(RemoteQp { ip, number, .. }) => format!("queue pair {number:#x} at {ip}"),
        None => "unknown".to_owned(),
    };
    let view = context::look(context).ok();
    let status = Status::from_number(status as u8);
    say(&format!(
        "queue pair {qp:#x}: work request {:#x} ended with status {} (vendor_err {}), peer {peer_name}: {}{}",
        completion.wr_id,
        status as u8,
        completion.vendor_err,
        status.explain(),
        match (status, view, peer) {
            (Status::RetryExceeded, Some(view), Some(peer)) => unreachable(&view.nic, &peer),
            _ => None,
        }
        .unwrap_or_else(|| advice(status).to_owned())
    ));
    if let Some(view) = view {
        waited(&view.nic, qp);
    }
}

/// Prints the number of times that a queue pair has waited for receives of its peer since it was connected,
/// unless the same number was printed before.
pub(crate) fn waited(nic: &Nic, qp: u32) {
    if !is_wanted() {
        return;
    }
    let Some(peer) = known().peers.get(&qp).copied() else { return };
    let waits = nic.adapter.rnr_waits(requests::qpn_of(qp));
    if waits > 0 && known().waits.insert(qp, waits) != Some(waits) {
        say(&format!(
            "queue pair {qp:#x} waited {waits} times because its peer, queue pair {:#x} at {}, had no receive posted (RNR), each \
             for the peer's min_rnr_timer; 0 means 655 ms there",
            peer.number, peer.ip
        ));
    }
}

/// Returns whether this is the queue pair's first completion with this status.
fn is_first(status: c_int, qp: u32) -> bool {
    let statuses = &mut known().statuses;
    if statuses.len() >= MOST && !statuses.contains_key(&qp) {
        return false;
    }
    let bits = statuses.entry(qp).or_default();
    let bit = 1u64 << (status as u32 % 64);
    let first = *bits & bit == 0;
    *bits |= bit;
    first
}

/// Returns a fault of the network on the way to a peer that has not answered, or `None` if none is found.
fn unreachable(nic: &Nic, peer: &RemoteQp) -> Option<String> {
    let own = peer.own;
    if nic.port.gids().iter().all(|(_, entry)| entry.ip != own) {
        return Some(format!("; no interface has the device's address {own} any more"));
    }
    if !nic.port.is_active() {
        return Some("; the port is down: the interface is not up, or has no carrier".to_owned());
    }
    let headers = if own.is_ipv4() { IPV4_HEADERS } else { IPV6_HEADERS };
    let takes = narrowness(own, peer.ip)?;
    let needs = peer.path_mtu + headers;
    (takes < needs).then(|| {
        format!(
            "; the way there takes packets of {takes} bytes, and a path MTU of {} needs {needs}: give the queue pair a \
             smaller one, or raise the interfaces' MTU",
            peer.path_mtu
        )
    })
}

/// Returns the kernel's path MTU between two addresses in bytes, if it is known.
fn narrowness(own: IpAddr, peer: IpAddr) -> Option<u32> {
    let socket = UdpSocket::bind((own, 0)).ok()?;
    socket.connect((peer, ROCE_PORT)).ok()?;
    let (level, name) = match own {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let mut mtu: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `mtu`.
    let asked =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut mtu).cast(), &raw mut len) };
    (asked == 0).then_some(u32::try_from(mtu).ok()?)
}

/// Returns advice on the cause of an error status.
fn advice(status: Status) -> &'static str {
    match status {
        Status::Success | Status::WrFlushed => "",
        Status::LocalLength => {
            "; post receives as long as the longest message (and 40 bytes for the GRH of datagrams), and keep messages within \
             the port's max_msg_sz, or within the path MTU for datagrams"
        }
        Status::LocalQpOperation => {
            "; look at the request's op-code for this type of queue pair, its lists, and its address handle"
        }
        Status::LocalProtection => {
            "; compare lkey, address and length with the region, and look for IBV_ACCESS_LOCAL_WRITE"
        }
        Status::MwBind => {
            "; look for IBV_ACCESS_MW_BIND of the region, its bounds and protection domain, and whether the window is free"
        }
        Status::BadResponse => {
            "; look whether two queue pairs of the peer have been given the same number or PSN, and whether frames are changed on \
             their way"
        }
        Status::LocalAccess => {
            "; look at what the peer's WRITE with immediate data named: the rkey, its range and its rights here"
        }
        Status::RemoteInvalidRequest => {
            "; look at the length of the peer's receives, its max_dest_rd_atomic, and the alignment of atomics"
        }
        Status::RemoteAccess => {
            "; compare rkey, address and length with the peer's region, its rights, and its protection domain"
        }
        Status::RemoteOperation => {
            "; the peer's queue pair is in the error state now: look at the completion of its receive, and at memory that has \
             gone away there"
        }
        Status::RetryExceeded => {
            "; look whether the peer runs and is in RTR, whether GID and QP number are right, and whether UDP port 4791 passes \
             (`remora doctor` shows who has which QP numbers)"
        }
        Status::RnrRetryExceeded => {
            "; let the peer post receives in time, or set rnr_retry to 7, which is for ever"
        }
        Status::General => "; look at the device: `remora doctor` says whether its broker runs",
    }
}

/// Passes a result on, and explains a refusal by the name of the attribute.
pub(crate) fn named<T>(call: &'static str, attribute: &str, result: Result<T, c_int>) -> Result<T, c_int> {
    if let Err(errno) = result {
        refused(call, attribute, &format_args!("not a value that this device takes (errno {errno})"));
    }
    result
}

/// Explains a refused call: the refused object, and the reason.
#[cold]
pub(crate) fn refused(call: &'static str, object: &str, why: &dyn Display) {
    if !is_wanted() {
        return;
    }
    let key = (call, format!("{object}: {why}"));
    let mut known = known();
    if known.refused.len() < MOST && !known.refused.contains(&key) {
        say(&format!("{call} is refused: {}", key.1));
        known.refused.push(key);
    }
}

/// Prints, when the device is closed, how often threads were woken and queue pairs waited for receives.
pub(crate) fn closed(nic: &Nic) {
    if !is_wanted() || nic.adapter.is_child() {
        return;
    }
    let wakes = nic.adapter.driver_counters();
    if wakes.caller_wakes > 0 {
        say(&format!(
            "threads were woken {} times in ibv_get_cq_event, and beside it {} times by packets, {} by timers, {} by calls",
            wakes.caller_wakes, wakes.packet_wakes, wakes.timer_wakes, wakes.calls
        ));
    }
    let connected: Vec<u32> = known().peers.keys().copied().collect();
    connected.into_iter().for_each(|qp| waited(nic, qp));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_of_an_error_has_its_cause_and_an_advice_of_its_own() {
        let errors =
            Status::ALL.into_iter().filter(|status| !matches!(status, Status::Success | Status::WrFlushed));
        let mut words: Vec<String> =
            errors.map(|status| format!("{}{}", status.explain(), advice(status))).collect();
        assert_eq!(words.len(), 12);
        for text in &words {
            assert!(text.contains("; ") && text.len() > 60, "{text}");
        }
        words.sort();
        words.dedup();
        assert_eq!(words.len(), 12);
    }
}

//! The counters of the port as files: InfiniBand's counters in `counters`, and the counters of mlx5 and rxe
//! under their names in `hw_counters`.

use remora_verbs::Counters;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

/// Counters of InfiniBand's port for which a NIC in software has no events.
const NEVER: [&str; 14] = [
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_discards",
    "port_xmit_wait",
    "symbol_error",
];

/// Counters of InfiniBand's port: the file, the counters whose sum it shows, and the unit. Data is counted
/// in words of 32 bits.
const PORT: [(&str, &[&str], u64); 7] = [
    ("port_rcv_data", &["rcvd_bytes"], 4),
    ("port_rcv_errors", &["malformed_pkts", "rx_icrc_encapsulated"], 1),
    ("port_rcv_packets", &["rcvd_pkts"], 1),
    ("port_xmit_data", &["sent_bytes"], 4),
    ("port_xmit_packets", &["sent_pkts"], 1),
    ("unicast_rcv_packets", &["rcvd_pkts"], 1),
    ("unicast_xmit_packets", &["sent_pkts"], 1),
];

/// Counters that have another name in rxe than in the NIC.
const RXE: [(&str, &[&str], u64); 5] = [
    ("out_of_seq_request", &["out_of_sequence"], 1),
    ("rcvd_rnr_err", &["rnr_nak_retry_err"], 1),
    ("rcvd_seq_err", &["packet_seq_err"], 1),
    ("completer_retry_err", &["local_ack_timeout_err"], 1),
    ("rdma_recvs", &["rx_send_requests"], 1),
];

/// Returns every counter's file below the port's folder, and its value. `sums` are in the order of
/// [`Counters::each`]; missing ones are 0.
pub(super) fn all(sums: &[u64]) -> Vec<(String, u64)> {
    let names = Counters::default();
    let own: Vec<(&str, u64)> =
        names.each().map(|(name, _, _)| name).zip(sums.iter().copied().chain(std::iter::repeat(0))).collect();
    let sum = |(file, summands, unit): &(&'static str, &[&str], u64)| {
        let sum = own
            .iter()
            .filter(|(name, _)| summands.contains(name))
            .fold(0u64, |sum, (_, value)| sum.wrapping_add(*value));
        (*file, sum / unit)
    };
    let port = PORT.iter().map(sum).chain(NEVER.iter().map(|name| (*name, 0)));
    // There is no 1RMA on a shared address, so its counters are left out.
    let kept = own.iter().filter(|(name, _)| !name.starts_with("rma_")).copied();
    let hardware = kept.chain(RXE.iter().map(sum));
    let port = port.map(|(name, value)| (format!("counters/{name}"), value));
    port.chain(hardware.map(|(name, value)| (format!("hw_counters/{name}"), value))).collect()
}

/// Returns a file in memory with the present value of this counter, in the form of sysfs. `None` if there is
/// no such counter.
pub(crate) fn file(name: &str, sums: &[u64]) -> Option<io::Result<OwnedFd>> {
    let (_, value) = all(sums).into_iter().find(|(known, _)| known == name)?;
    Some(written(value))
}

fn written(value: u64) -> io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, SealFlags};
    let file = rustix::fs::memfd_create("remora-counter", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    // Written at an offset, so that the receiver reads from the beginning.
    rustix::io::pwrite(&file, format!("{value}\n").as_bytes(), 0)?;
    rustix::fs::fcntl_add_seals(file.as_fd(), SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::io::Read as _;

    #[test]
    fn a_counter_is_the_sum_of_what_it_names_and_each_name_is_there_once() {
        let mut counters = Counters { sent_bytes: 4096, malformed_pkts: 2, ..Counters::default() };
        (counters.rx_icrc_encapsulated, counters.rnr_nak_retry_err) = (3, 7);
        let sums: Vec<u64> = counters.each().map(|(_, _, value)| value).collect();
        let read = |name: &str| {
            let mut words = String::new();
            std::fs::File::from(file(name, &sums).unwrap().unwrap()).read_to_string(&mut words).unwrap();
            words
        };
        assert_eq!(read("counters/port_xmit_data"), "1024\n");
        assert_eq!(read("counters/port_rcv_errors"), "5\n");
        assert_eq!(read("hw_counters/rcvd_rnr_err"), "7\n");
        assert_eq!(read("hw_counters/rnr_nak_retry_err"), "7\n");
        assert!(file("hw_counters/../counters/port_xmit_data", &sums).is_none());
        let all = all(&sums);
        assert_eq!(all.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len(), all.len());
        let known: BTreeSet<&str> = counters.each().map(|(name, _, _)| name).collect();
        let summed = PORT.iter().chain(&RXE).flat_map(|(_, summands, _)| summands.iter());
        assert!(summed.clone().all(|name| known.contains(name)), "a counter has an unknown name");
    }
}

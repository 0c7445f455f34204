//! The protocol counters, under the names that mlx5 and rxe use in `hw_counters`.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The protocol counters of one engine. They are plain integers, because an engine has one writer.
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct Counters { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl Counters {
            /// Returns name, description and value of every counter.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($doc),+), self.$name),)+].into_iter()
            }

            /// Adds the counters of another engine.
            pub fn add(&mut self, other: &Counters) {
                $(self.$name += other.$name;)+
            }
        }
    };
}

counters! {
    /// Number of packets transmitted.
    sent_pkts,
    /// Packets received with a valid format, queue pair and ICRC.
    rcvd_pkts,
    /// Bytes transmitted, BTH to ICRC.
    sent_bytes,
    /// Bytes received, BTH to ICRC.
    rcvd_bytes,
    /// Frames dropped: truncated, too long, unknown op-code, or not RoCE.
    malformed_pkts,
    /// Frames dropped: the ICRC is wrong.
    rx_icrc_encapsulated,
    /// Frames dropped: unknown queue pair, or its peer, partition key or state did not match.
    unknown_qp,
    /// Requests that arrived out of order, after a gap.
    out_of_sequence,
    /// Duplicate requests received.
    duplicate_request,
    /// NAKs received for a PSN sequence error.
    packet_seq_err,
    /// Lost READ or atomic responses, detected by a later response or ACK.
    implied_nak_seq_err,
    /// RNR NAKs received.
    rnr_nak_retry_err,
    /// RNR NAKs sent.
    send_rnr_err,
    /// Expirations of the local ACK timeout.
    local_ack_timeout_err,
    /// Requests that failed after all retries.
    retry_exceeded_err,
    /// Requests that failed after all RNR retries.
    retry_rnr_exceeded_err,
    /// Number of packets retransmitted.
    retransmitted_pkts,
    /// WRITE requests executed.
    rx_write_requests,
    /// READ requests executed.
    rx_read_requests,
    /// Atomic requests executed.
    rx_atomic_requests,
    /// SEND requests executed.
    rx_send_requests,
    /// Requests passed to kernels.
    rx_rpc_requests,
    /// Requests refused because all kernels were busy.
    kernels_busy,
    /// Messages refused because no receive work request was posted.
    out_of_buffer,
    /// Messages of unreliable services dropped: a packet was lost, no receive was posted, or the operation
    /// was not allowed.
    rx_dropped_messages,
    /// Datagrams dropped because of a wrong Q_Key.
    qkey_viol_cntr,
    /// NAKs sent for a remote access error.
    resp_remote_access_errors,
    /// NAKs sent for an invalid request.
    resp_remote_invalid_request,
    /// NAKs sent for a remote operation error.
    resp_remote_op_errors,
    /// Messages longer than their receive work request.
    resp_local_length_error,
    /// NAKs received for a remote access error.
    req_remote_access_errors,
    /// NAKs received for an invalid request.
    req_remote_invalid_request,
    /// NAKs received for a remote operation error.
    req_remote_op_errors,
    /// Completions in error on the send side, without flushes.
    req_cqe_error,
    /// Flushed completions on the send side.
    req_cqe_flush_error,
    /// Completions in error on the receive side, without flushes.
    resp_cqe_error,
    /// Flushed completions on the receive side.
    resp_cqe_flush_error,
    /// Completions lost because the completion queue was full.
    cq_overrun,
    /// Packets accepted out of order, after a gap (IRN).
    irn_ahead_pkts,
    /// Packets dropped because they lay beyond the bitmap (IRN).
    irn_beyond_pkts,
    /// Loss recoveries started by senders of requests (IRN).
    irn_recoveries,
    /// Timeouts of RTO_low, which are also counted as local ACK timeouts (IRN).
    irn_short_timeouts,
    /// Timeouts of the senders of READ and atomic responses (IRN).
    irn_response_timeouts,
    /// READ and atomic responses retransmitted (IRN).
    irn_responses_repeated,
    /// Packets received with an ECN congestion mark (CE).
    np_ecn_marked_roce_packets,
    /// Number of CNPs sent.
    np_cnp_sent,
    /// CNPs received that reduced the rate of a queue pair.
    rp_cnp_handled,
    /// CNPs received for queue pairs without DCQCN.
    rp_cnp_ignored,
    /// Work requests executed (WQEs fetched from send queues).
    wqes_executed,
    /// Requests accepted by the server side (1RMA).
    rma_served,
    /// Region keys changed by a rekey (1RMA).
    rma_rekeys,
    /// Requests with a wrong tag or an unknown region (1RMA).
    rma_bad_requests,
    /// Authentication-failure messages suppressed because too many were pending (1RMA).
    rma_failures_suppressed,
    /// Responses dropped because of a wrong tag (1RMA).
    rma_bad_responses,
    /// Messages dropped because no operation expected them (1RMA).
    rma_unexpected,
    /// Authentic requests that lacked a right or were out of bounds (1RMA).
    rma_access_errors,
    /// Requests refused with a NACK, because too much work was pending or the window stayed full (1RMA).
    rma_nacks_sent,
    /// Operations that the server refused with a NACK (1RMA).
    rma_nacks_received,
    /// NACKs not sent because their queue was full (1RMA).
    rma_refusals_dropped,
    /// Pieces of writes dropped as duplicates or because they were late (1RMA).
    rma_late_pieces,
    /// Requests aborted because their region was rekeyed or removed (1RMA).
    rma_revoked,
    /// Writes and rekeys aborted because their data did not arrive in time (1RMA).
    rma_served_timeouts,
    /// Messages without a route to their destination (1RMA).
    rma_unreachable,
    /// Operations that timed out (1RMA).
    rma_timeouts,
    /// Operations that timed out while they waited for the window (1RMA).
    rma_dispatch_timeouts,
    /// Commands refused because of wrong bytes, slot or local operand (1RMA).
    rma_malformed_commands,
}

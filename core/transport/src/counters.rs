//! The counters of the machines, with the names that mlx5 and rxe give in `hw_counters`.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Counters of one engine. Plain numbers: an engine has one writer.
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl Counters {
            /// Every counter's name, meaning and value.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($doc),+), self.$name),)+].into_iter()
            }

            /// Adds another engine's counters.
            pub fn add(&mut self, other: &Counters) {
                $(self.$name += other.$name;)+
            }
        }
    };
}

counters! {
    /// Packets transmitted.
    sent_pkts,
    /// Packets received whose form, queue pair and ICRC were right.
    rcvd_pkts,
    /// Bytes transmitted, BTH to ICRC.
    sent_bytes,
    /// Bytes received, BTH to ICRC.
    rcvd_bytes,
    /// Frames dropped: truncated, oversized, unknown op-code, not RoCE.
    malformed_pkts,
    /// Frames dropped: the ICRC is wrong.
    rx_icrc_encapsulated,
    /// Frames dropped: no such queue pair, or the wrong peer, key or state for it.
    unknown_qp,
    /// Requests that arrived ahead of a gap.
    out_of_sequence,
    /// Requests that arrived again.
    duplicate_request,
    /// NAKs for a sequence error received.
    packet_seq_err,
    /// READ or atomic responses found missing by a later answer.
    implied_nak_seq_err,
    /// RNR NAKs received.
    rnr_nak_retry_err,
    /// RNR NAKs sent.
    send_rnr_err,
    /// Local ACK timeouts.
    local_ack_timeout_err,
    /// Requests given up after all retries.
    retry_exceeded_err,
    /// Requests given up after all RNR retries.
    retry_rnr_exceeded_err,
    /// Packets transmitted again.
    retransmitted_pkts,
    /// WRITE requests executed.
    rx_write_requests,
    /// READ requests executed.
    rx_read_requests,
    /// Atomic requests executed.
    rx_atomic_requests,
    /// SEND requests executed.
    rx_send_requests,
    /// Requests to kernels taken.
    rx_rpc_requests,
    /// Requests to kernels that found all of them busy.
    kernels_busy,
    /// Messages that found no receive work request.
    out_of_buffer,
    /// Messages of unreliable services dropped: a packet is missing, no receive is posted, or the operation
    /// is not allowed.
    rx_dropped_messages,
    /// Datagrams dropped: the Q_Key is wrong.
    qkey_viol_cntr,
    /// NAKs sent for a remote access error.
    resp_remote_access_errors,
    /// NAKs sent for an invalid request.
    resp_remote_invalid_request,
    /// NAKs sent for a remote operation error.
    resp_remote_op_errors,
    /// Messages longer than the receive work request that they found.
    resp_local_length_error,
    /// NAKs received for a remote access error.
    req_remote_access_errors,
    /// NAKs received for an invalid request.
    req_remote_invalid_request,
    /// NAKs received for a remote operation error.
    req_remote_op_errors,
    /// Completions in error on the send side, flushes not counted.
    req_cqe_error,
    /// Flushed completions on the send side.
    req_cqe_flush_error,
    /// Completions in error on the receive side, flushes not counted.
    resp_cqe_error,
    /// Flushed completions on the receive side.
    resp_cqe_flush_error,
    /// Completions that found their queue full.
    cq_overrun,
    /// Packets taken ahead of a gap (IRN).
    irn_ahead_pkts,
    /// Packets dropped because they were further ahead than the bitmap reaches (IRN).
    irn_beyond_pkts,
    /// Recoveries begun by the senders of requests (IRN).
    irn_recoveries,
    /// Timeouts after RTO_low, part of the local ACK timeouts (IRN).
    irn_short_timeouts,
    /// Timeouts of the senders of READ and atomic responses (IRN).
    irn_response_timeouts,
    /// READ and atomic responses transmitted again (IRN).
    irn_responses_repeated,
    /// Packets received that a switch has marked (ECN: congestion experienced).
    np_ecn_marked_roce_packets,
    /// CNPs sent.
    np_cnp_sent,
    /// CNPs received that slowed a queue pair.
    rp_cnp_handled,
    /// CNPs received for queue pairs without DCQCN.
    rp_cnp_ignored,
    /// Work requests executed: WQEs taken from send queues.
    wqes_executed,
    /// Requests taken into service (1RMA).
    rma_served,
    /// Keys of regions changed by a rekey (1RMA).
    rma_rekeys,
    /// Requests whose tag was wrong, or that named no region (1RMA).
    rma_bad_requests,
    /// Authentication failures that were not sent, because too many were due (1RMA).
    rma_failures_suppressed,
    /// Responses dropped because their tag was wrong (1RMA).
    rma_bad_responses,
    /// Messages dropped because no operation awaited them (1RMA).
    rma_unexpected,
    /// Authentic requests that lacked a right or lay out of bounds (1RMA).
    rma_access_errors,
    /// Requests refused with a NACK: too much was owed, or the window stayed full (1RMA).
    rma_nacks_sent,
    /// Operations that the server refused with a NACK (1RMA).
    rma_nacks_received,
    /// Refusals that found their queue full (1RMA).
    rma_refusals_dropped,
    /// Pieces of writes dropped because they came twice or too late (1RMA).
    rma_late_pieces,
    /// Operations served that ended because their region had another key or was gone (1RMA).
    rma_revoked,
    /// Writes and rekeys served whose bytes did not come in time (1RMA).
    rma_served_timeouts,
    /// Messages that had no way to their destination (1RMA).
    rma_unreachable,
    /// Operations that took too long (1RMA).
    rma_timeouts,
    /// Operations that waited too long for the window (1RMA).
    rma_dispatch_timeouts,
    /// Commands refused: their bytes, slot or local operand were wrong (1RMA).
    rma_malformed_commands,
}

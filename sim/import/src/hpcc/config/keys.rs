//! The keys of both dialects and the kinds of their values.

use super::Value;

/// The type of a key's value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An unsigned whole number.
    Integer,
    /// A decimal number.
    Decimal,
    /// A rate in the notation of ns-3, such as `100Gbps`.
    Rate,
    /// A single word without blanks.
    Text,
    /// A count, followed by that many pairs of a link rate in bit/s and a number.
    Map,
    /// Three unsigned whole numbers.
    Triple,
}

impl Kind {
    /// Returns true if `value` is of this kind and reads back unchanged after it was written.
    pub fn takes(self, value: &Value) -> bool {
        match value {
            Value::Integer(_) => self == Kind::Integer,
            Value::Decimal(_) => self == Kind::Decimal,
            Value::Rate(_) => self == Kind::Rate,
            Value::Map(_) => self == Kind::Map,
            Value::Triple(_) => self == Kind::Triple,
            Value::Text(text) => {
                self == Kind::Text && !text.is_empty() && !text.contains(|c: char| c.is_ascii() && c <= ' ')
            }
        }
    }
}

/// All keys of both dialects in alphabetical order, with the kinds of their values.
pub const KEYS: &[(&str, Kind)] = &[
    ("ACK_HIGH_PRIO", Kind::Integer),
    ("ALPHA_RESUME_INTERVAL", Kind::Decimal),
    ("BUFFER_SIZE", Kind::Integer),
    ("CC_MODE", Kind::Integer),
    ("CLAMP_TARGET_RATE", Kind::Integer),
    ("CNP_OUTPUT_FILE", Kind::Text),
    ("CONN_MON_FILE", Kind::Text),
    ("CONWEAVE_DEFAULT_VOQ_WAITING_TIME", Kind::Integer),
    ("CONWEAVE_EXTRA_VOQ_FLUSH_TIME", Kind::Integer),
    ("CONWEAVE_PATH_PAUSE_TIME", Kind::Integer),
    ("CONWEAVE_REPLY_TIMEOUT_EXTRA", Kind::Integer),
    ("CONWEAVE_TX_EXPIRY_TIME", Kind::Integer),
    ("DATA_RATE", Kind::Text),
    ("DCTCP_RATE_AI", Kind::Rate),
    ("ENABLE_IRN", Kind::Integer),
    ("ENABLE_PFC", Kind::Integer),
    ("ENABLE_QCN", Kind::Integer),
    ("ENABLE_TRACE", Kind::Integer),
    ("ERROR_RATE_PER_LINK", Kind::Decimal),
    ("EST_ERROR_MON_FILE", Kind::Text),
    ("EWMA_GAIN", Kind::Decimal),
    ("FAST_REACT", Kind::Integer),
    ("FAST_RECOVERY_TIMES", Kind::Integer),
    ("FCT_OUTPUT_FILE", Kind::Text),
    ("FLOWGEN_START_TIME", Kind::Decimal),
    ("FLOWGEN_STOP_TIME", Kind::Decimal),
    ("FLOW_FILE", Kind::Text),
    ("FLOW_INPUT_FILE", Kind::Text),
    ("GLOBAL_T", Kind::Integer),
    ("HAS_WIN", Kind::Integer),
    ("INT_MULTI", Kind::Integer),
    ("KMAX_MAP", Kind::Map),
    ("KMIN_MAP", Kind::Map),
    ("L2_ACK_INTERVAL", Kind::Integer),
    ("L2_BACK_TO_ZERO", Kind::Integer),
    ("L2_CHUNK_SIZE", Kind::Integer),
    ("LB_MODE", Kind::Integer),
    ("LINK_DELAY", Kind::Text),
    ("LINK_DOWN", Kind::Triple),
    ("LOAD", Kind::Decimal),
    ("MIN_RATE", Kind::Rate),
    ("MI_THRESH", Kind::Integer),
    ("MULTI_RATE", Kind::Integer),
    ("PACKET_PAYLOAD_SIZE", Kind::Integer),
    ("PAUSE_TIME", Kind::Decimal),
    ("PFC_OUTPUT_FILE", Kind::Text),
    ("PINT_LOG_BASE", Kind::Decimal),
    ("PINT_PROB", Kind::Decimal),
    ("PMAX_MAP", Kind::Map),
    ("QLEN_MON_END", Kind::Integer),
    ("QLEN_MON_FILE", Kind::Text),
    ("QLEN_MON_START", Kind::Integer),
    ("RANDOM_SEED", Kind::Integer),
    ("RATE_AI", Kind::Rate),
    ("RATE_BOUND", Kind::Integer),
    ("RATE_DECREASE_INTERVAL", Kind::Decimal),
    ("RATE_HAI", Kind::Rate),
    ("RP_TIMER", Kind::Decimal),
    ("SAMPLE_FEEDBACK", Kind::Integer),
    ("SIMULATOR_STOP_TIME", Kind::Decimal),
    ("SW_MONITORING_INTERVAL", Kind::Integer),
    ("TOPOLOGY_FILE", Kind::Text),
    ("TRACE_FILE", Kind::Text),
    ("TRACE_OUTPUT_FILE", Kind::Text),
    ("UPLINK_MON_FILE", Kind::Text),
    ("USE_DYNAMIC_PFC_THRESHOLD", Kind::Integer),
    ("U_TARGET", Kind::Decimal),
    ("VAR_WIN", Kind::Integer),
    ("VOQ_MON_DETAIL_FILE", Kind::Text),
    ("VOQ_MON_FILE", Kind::Text),
];

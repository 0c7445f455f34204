//! Transports and congestion controls by name, and what a scenario may change about them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::units::{Rate, Size, Time};

/// What recovers from loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Transport {
    /// Which one.
    pub name: TransportName,
    /// RoCE's retransmission timeout; without it, there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto: Option<Time>,
    /// IRN's timeout with few packets in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto_low: Option<Time>,
    /// IRN's timeout else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto_high: Option<Time>,
    /// IRN's few packets: up to so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub few_packets: Option<u32>,
    /// IRN's packets in flight at most; without it, the bandwidth-delay product of the longest path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<u32>,
    /// IRN: do packets that were acknowledged selectively no longer count for the cap?
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sacked_leave_cap: bool,
    /// Packets of one ACK.
    pub packets_per_ack: u32,
    /// How long a sender waits before it sends a packet again: Figure 12 has 2 us.
    pub retransmission_delay: Time,
    /// Bytes that each data packet is charged on top: Figure 12 has 16.
    pub extra_header: Size,
}

impl Default for Transport {
    /// IRN as its paper has it.
    fn default() -> Transport {
        Transport {
            name: TransportName::Irn,
            rto: None,
            rto_low: None,
            rto_high: None,
            few_packets: None,
            cap: None,
            sacked_leave_cap: false,
            packets_per_ack: 1,
            retransmission_delay: Time(0),
            extra_header: Size(0),
        }
    }
}

/// What sets the rates. What is not given is as the named control has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Control {
    /// Which one.
    pub name: ControlName,
    /// DCQCN: how often alpha is updated without a CNP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha_interval: Option<Time>,
    /// DCQCN: how often the rate is cut, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decrease_interval: Option<Time>,
    /// DCQCN: how often the rate is raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub increase_interval: Option<Time>,
    /// DCQCN: weight of a new mark in alpha, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// DCQCN: rounds of fast recovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_recovery: Option<u32>,
    /// Additive increase of the rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_ai: Option<Rate>,
    /// Hyper-active increase of the rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_hai: Option<Rate>,
    /// The lowest rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rate: Option<Rate>,
    /// DCQCN: does every cut lower the target rate, too?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clamp_target: Option<bool>,
    /// Is the window of a flow bounded, by the bandwidth-delay product?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<bool>,
    /// Is that product the one of the flow's own path, not of the longest?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_of_pair: Option<bool>,
    /// Does the window shrink with the rate that the control allows?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_follows_rate: Option<bool>,
}

impl Control {
    /// Are all numbers within their bounds?
    ///
    /// # Errors
    /// What is wrong and the remedy.
    pub fn check(&self) -> Result<(), String> {
        match self.gain {
            Some(gain) if !(0.0..=1.0).contains(&gain) => {
                Err(format!("control.gain is {gain}: choose a number from 0 to 1"))
            }
            _ => Ok(()),
        }
    }
}

/// An enum whose variants have the names of files and of the command line.
macro_rules! named {
    ($(#[$meta:meta])* $type:ident, $what:literal, { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$meta])*
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $type {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl $type {
            /// Every one.
            pub const ALL: &[$type] = &[$($type::$variant,)*];

            /// The name.
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<$type, String> {
                $type::ALL.iter().copied().find(|known| known.name() == text).ok_or_else(|| {
                    let names: Vec<_> = $type::ALL.iter().map(|known| known.name()).collect();
                    let text = crate::error::excerpt(text);
                    format!("no {} is called `{text}`: choose one of {}", $what, names.join(", "))
                })
            }
        }
    };
}

named!(
    /// A transport.
    TransportName, "transport", {
        /// RoCE's go-back-N. What does not fit into a switch is lost.
        Roce = "roce",
        /// The same with PFC.
        RocePfc = "roce+pfc",
        /// IRN.
        #[default]
        Irn = "irn",
        /// IRN with PFC.
        IrnPfc = "irn+pfc",
        /// IRN that goes back N (Figure 7).
        IrnGoBackN = "irn-go-back-n",
        /// IRN without its cap on packets in flight (Figure 7).
        IrnWithoutCap = "irn-no-bdpfc",
        /// IRN that retransmits without SACKs (Figure 7).
        IrnWithoutSack = "irn-no-sack",
        /// RoCE with DCQCN and without PFC (Figure 10).
        ResilientRoce = "resilient-roce",
    }
);

named!(
    /// A congestion control.
    ControlName, "control", {
        /// None: at the rate of the link.
        #[default]
        None = "none",
        /// DCQCN as its paper has it.
        Dcqcn = "dcqcn",
        /// DCQCN as the ns-3 programs have it: the ACK echoes each mark.
        DcqcnNs3 = "dcqcn-ns3",
        /// TIMELY as its paper has it.
        Timely = "timely",
        /// TIMELY with the patch of "ECN or Delay", by which flows come to a fair share.
        TimelyPatched = "timely-patched",
    }
);

impl TransportName {
    /// Do switches pause with this transport?
    pub fn has_pfc(self) -> bool {
        matches!(self, TransportName::RocePfc | TransportName::IrnPfc)
    }
}

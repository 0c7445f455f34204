//! Operations that the benchmark measures: PRISM's, the plain verbs, and the operations that PRISM's replace.

use remora_cost::prism::{self, Plan};

/// An operation of the benchmark.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// A READ of RC.
    Read,
    /// A WRITE of RC.
    Write,
    /// A compare-and-swap of RC, on 8 bytes.
    Cas,
    /// A READ through a pointer.
    IndirectRead,
    /// A bounded READ through a pointer, like PRISM-KV's GET.
    BoundedRead,
    /// An ALLOCATE, which writes a value to a free buffer.
    Allocate,
    /// A masked compare-and-swap of 16 bytes that swaps if the value is greater.
    EnhancedCas,
    /// A WRITE of a tag, an ALLOCATE and a CAS in a chain, like PRISM-RS's write phase.
    Chain,
    /// A bounded READ and then the chain, like PRISM-KV's PUT if the slot is not known.
    Put,
    /// A READ of the pointer, and then a READ of the value.
    TwoReads,
    /// A WRITE of the value, and then a CAS of the pointer to it.
    WriteThenCas,
    /// A call of a polling program with a short request, and the value in the response.
    CallToRead,
    /// A call of a polling program with the value in the request, and a short response.
    CallToWrite,
}

impl Case {
    /// All operations, with the plain verbs first.
    pub(crate) const ALL: [Case; 13] = [
        Case::Read,
        Case::Write,
        Case::Cas,
        Case::IndirectRead,
        Case::BoundedRead,
        Case::Allocate,
        Case::EnhancedCas,
        Case::Chain,
        Case::Put,
        Case::TwoReads,
        Case::WriteThenCas,
        Case::CallToRead,
        Case::CallToWrite,
    ];

    /// Returns the name of the operation and its plan on modelled hardware.
    pub(crate) fn plan(self) -> Plan {
        match self {
            Case::Read => prism::READ,
            Case::Write => prism::WRITE,
            Case::Cas => prism::CAS,
            Case::IndirectRead => prism::INDIRECT_READ,
            Case::BoundedRead => prism::BOUNDED_READ,
            Case::Allocate => prism::ALLOCATE,
            Case::EnhancedCas => prism::ENHANCED_CAS,
            Case::Chain => prism::CHAIN,
            Case::Put => prism::PUT,
            Case::TwoReads => prism::TWO_READS,
            Case::WriteThenCas => prism::WRITE_THEN_CAS,
            Case::CallToRead => Plan { name: "rpc-to-read", ..prism::RPC },
            Case::CallToWrite => Plan { name: "rpc-to-write", ..prism::RPC },
        }
    }

    /// Returns the length in bytes of the value.
    pub(crate) fn len(self) -> usize {
        match self {
            Case::Cas => 8,
            Case::EnhancedCas => 16,
            _ => super::place::VALUE_LEN,
        }
    }

    /// Returns the path of the case, beginning with the port's name.
    pub(crate) fn path(self, port: &str) -> String {
        format!("{port}/{}/{}", self.plan().name, self.len())
    }

    /// Returns the cases to compare with: the plain verb, and the operations that this one replaces.
    pub(crate) fn beside(self) -> &'static [Case] {
        match self {
            Case::Read | Case::Write => &[],
            Case::Cas | Case::CallToRead => &[Case::Read],
            Case::CallToWrite | Case::WriteThenCas => &[Case::Write],
            Case::TwoReads => &[Case::Read],
            Case::IndirectRead | Case::BoundedRead => &[Case::Read, Case::TwoReads, Case::CallToRead],
            Case::Allocate => &[Case::Write, Case::CallToWrite],
            Case::EnhancedCas => &[Case::Cas],
            Case::Chain => &[Case::Write, Case::WriteThenCas, Case::CallToWrite],
            Case::Put => &[Case::Write, Case::CallToWrite],
        }
    }

    /// Returns the maximum number of round trips on the wire, if it is bounded: 1 for a GET, 2 for a PUT, and
    /// 1 for a PUT whose slot is known.
    pub(crate) fn asked(self) -> Option<f64> {
        match self {
            Case::IndirectRead | Case::BoundedRead | Case::Chain => Some(1.0),
            Case::Allocate | Case::EnhancedCas => Some(1.0),
            Case::Put => Some(2.0),
            _ => None,
        }
    }

    /// Returns whether the server's program answers, rather than its NIC.
    pub(crate) fn is_call(self) -> bool {
        matches!(self, Case::CallToRead | Case::CallToWrite)
    }

    /// Returns the lengths in bytes of the request and the answer of a call.
    pub(crate) fn message(self) -> (usize, usize) {
        match self {
            Case::CallToWrite => (self.len(), 16),
            _ => (16, self.len()),
        }
    }
}

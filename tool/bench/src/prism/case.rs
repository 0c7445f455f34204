//! What is measured: the operations of PRISM, the plain verbs, and what each operation replaces.

use remora_nic::cost::prism::{self, Plan};

/// One of them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Case {
    /// Plain verb.
    Read,
    /// Plain verb.
    Write,
    /// Plain verb.
    Cas,
    /// READ through a pointer.
    IndirectRead,
    /// READ through a pointer and its bound: PRISM-KV's GET.
    BoundedRead,
    /// A value into a buffer.
    Allocate,
    /// Compare-and-swap of 16 bytes: greater, masked.
    EnhancedCas,
    /// WRITE of a tag, ALLOCATE, CAS: PRISM-RS's write phase.
    Chain,
    /// A bounded READ, then the chain: PRISM-KV's PUT where the slot is not known.
    Put,
    /// The pointer, then the value.
    TwoReads,
    /// The value, then the pointer to it.
    WriteThenCas,
    /// A call of a program that polls: a short question, a value for an answer.
    CallToRead,
    /// The same: a value, a short answer.
    CallToWrite,
}

impl Case {
    /// All, the plain verbs first.
    pub const ALL: [Case; 13] = [
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

    /// Its name, and the same operation on modelled hardware.
    pub fn plan(self) -> Plan {
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

    /// Bytes that it is about.
    pub fn len(self) -> usize {
        match self {
            Case::Cas => 8,
            Case::EnhancedCas => 16,
            _ => super::place::VALUE_LEN,
        }
    }

    /// Its path, behind the port's name.
    pub fn path(self, port: &str) -> String {
        format!("{port}/{}/{}", self.plan().name, self.len())
    }

    /// What it is compared to: the plain verb, and what it replaces.
    pub fn beside(self) -> &'static [Case] {
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

    /// Round trips that it may take on the wire, if that is asked for: GET 1, PUT 2, or 1 with the slot
    /// known.
    pub fn asked(self) -> Option<f64> {
        match self {
            Case::IndirectRead | Case::BoundedRead | Case::Chain => Some(1.0),
            Case::Allocate | Case::EnhancedCas => Some(1.0),
            Case::Put => Some(2.0),
            _ => None,
        }
    }

    /// Does the server's program answer?
    pub fn is_call(self) -> bool {
        matches!(self, Case::CallToRead | Case::CallToWrite)
    }

    /// Bytes of the question and the answer of a call.
    pub fn message(self) -> (usize, usize) {
        match self {
            Case::CallToWrite => (self.len(), 16),
            _ => (16, self.len()),
        }
    }
}

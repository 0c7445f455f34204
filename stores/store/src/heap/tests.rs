//! Tests of sweeps against an account of each buffer's owner, and of all kinds of messages.

use std::collections::BTreeSet;

use remora_memory::{Bytes, Key};
use remora_nic::{PostError, ReceiveRequest, WorkCompletion, WorkRequest};

use super::*;
use crate::{Broken, Post, Registered};

mod accounts;
mod messages;

/// The free lists of a NIC, as sets.
pub(crate) struct Free {
    pub free: BTreeSet<u64>,
}

impl Lists for Free {
    fn post_buffer(&mut self, class: &Class, address: u64) -> Result<(), PostError> {
        assert!(class.index(address).is_some(), "a buffer of the class");
        assert!(self.free.insert(address), "{address} is free already");
        Ok(())
    }

    fn out(&mut self, class: &Class, first: u32, bits: &mut [u64]) {
        bits.fill(0);
        for index in first..class.count.min(first + bits.len() as u32 * 64) {
            let bit = (index - first) as usize;
            bits[bit / 64] |= u64::from(!self.free.contains(&class.address(index))) << (bit % 64);
        }
    }
}

pub(crate) struct Slots(pub Vec<u64>);

impl Reachable for Slots {
    fn entries(&self) -> usize {
        self.0.len()
    }

    fn buffers(&self, entry: usize, report: &mut dyn FnMut(u64)) {
        report(self.0[entry]);
    }
}

/// The requests posted to a queue pair.
#[derive(Default)]
pub(crate) struct Posted {
    pub sends: Vec<(u64, Vec<remora_nic::Sge>)>,
    pub receives: Vec<(u64, remora_nic::Sge)>,
}

impl Post for Posted {
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let remora_nic::Payload::Sges(sges) = request.payload else { panic!("a list") };
        self.sends.push((request.id, sges.to_vec()));
        Ok(())
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.receives.push((request.id, request.sges[0]));
        Ok(())
    }
}

pub(crate) fn classes() -> Classes {
    let class = |list, base, size, count| Class { list, base, size, count };
    Classes::new(vec![class(7, 100_000, 512, 70), class(8, 1 << 20, 64, 130)]).unwrap()
}

pub(crate) fn block(len: usize) -> Registered {
    Registered { bytes: Bytes::heap(len).unwrap(), addr: 0, key: Key::new(1) }
}

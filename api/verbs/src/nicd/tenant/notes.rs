//! The objects that outlive a program, with the facts that the next program needs.

use remora_host::packet::is_tcp;
use remora_nic::ObjectName;
use std::os::fd::{AsFd, OwnedFd};

use super::super::message::{KeptObject, Refusal, Reply};
use super::{Held, ReplyResult, Tenant, descriptor, words};

impl Tenant {
    /// Stores the facts of a program with an object, which is kept from now on when the program ends.
    pub(super) fn note(
        &mut self,
        object: ObjectName,
        note: Vec<u8>,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Refusal> {
        if !matches!(object, ObjectName::Cq(_) | ObjectName::Qp(_) | ObjectName::Kernel(_)) {
            return Err("only completion queues, queue pairs and kernels outlive a program".into());
        }
        let connection = descriptors.into_iter().next();
        if connection.as_ref().is_some_and(|connection| !is_tcp(connection.as_fd())) {
            return Err("the descriptor is no TCP connection".into());
        }
        let held = self.held_mut(object)?;
        held.note = Some(note);
        if connection.is_some() {
            held.connection = connection;
        }
        Ok(())
    }

    /// Replies with kept object number `place`, counting domains, regions, and the objects with facts.
    pub(super) fn kept(&self, place: usize) -> ReplyResult {
        let domains = self.domains.len();
        if let Some(domain) = self.domains.values().nth(place) {
            return Ok((Reply::Kept(Box::new(KeptObject::Domain(domain.pd))), Vec::new()));
        }
        let regions = || self.regions.values().filter(|region| !region.blocks.is_empty());
        if let Some(region) = regions().nth(place - domains) {
            let kept = KeptObject::Region {
                key: region.key,
                pd: region.pd,
                first: region.first,
                name: region.name.clone(),
            };
            let memory = region.blocks.get(usize::from(region.first.descriptor));
            let memory = descriptor(memory.ok_or("a region without memory")?.bytes())?;
            return Ok((Reply::Kept(Box::new(kept)), vec![memory]));
        }
        let place = place - domains - regions().count();
        let noted = self.objects.values().filter_map(|held| Some((held, held.note.as_ref()?))).nth(place);
        match noted {
            Some((held, note)) => lend(held, note),
            None => Ok((Reply::Nothing, Vec::new())),
        }
    }
}

fn lend(held: &Held, note: &[u8]) -> ReplyResult {
    let mut lent =
        held.memory.iter().map(|memory| descriptor(memory.bytes())).collect::<Result<Vec<_>, Refusal>>()?;
    if let Some(connection) = &held.connection {
        lent.push(connection.try_clone().map_err(words)?);
    }
    let kept =
        KeptObject::Object { object: held.name, bell: held.bell.unwrap_or_default(), note: note.to_vec() };
    Ok((Reply::Kept(Box::new(kept)), lent))
}

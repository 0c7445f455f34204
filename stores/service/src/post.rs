//! The queue pairs of a NIC, behind the interface that the store machines use.

use remora_store::PostPrism;
use remora_store::kv::{Post, PostError, Registered};
use remora_verbs::{Batch, Init, MemoryRegion, QueuePair, Ready, ReceiveRequest, Sge, WorkRequest, prism};

fn queue_error(error: remora_verbs::PostError) -> PostError {
    match error {
        remora_verbs::PostError::Queue(error) => error,
        // After any other error, the queue accepts no more requests.
        _ => PostError::BadState,
    }
}

/// A connected queue pair that rings the doorbell for each request.
pub struct Direct<'a>(pub &'a mut QueuePair<Ready>);

impl Post for Direct<'_> {
    #[inline]
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.0.post_send(request).map_err(queue_error)
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.0.post_recv(request).map_err(queue_error)
    }
}

impl PostPrism for Direct<'_> {
    fn post_prism(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        self.0.post_prism(request).map_err(queue_error)
    }
}

/// A batch, with one doorbell for all its requests.
pub struct Batched<'a, 'b>(pub &'a mut Batch<'b>);

impl Post for Batched<'_, '_> {
    #[inline]
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.0.post_send(request).map_err(queue_error)
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.0.post_recv(request).map_err(queue_error)
    }
}

impl PostPrism for Batched<'_, '_> {
    #[inline]
    fn post_prism(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        self.0.post_prism(request).map_err(queue_error)
    }
}

/// A queue pair that rings one doorbell for all posted requests when it is dropped, so that a chain leaves
/// as a unit.
pub struct Ringing<'a>(Option<Batch<'a>>);

impl Ringing<'_> {
    /// Returns the interface to a connected queue pair.
    #[inline]
    pub fn of(pair: &mut QueuePair<Ready>) -> Ringing<'_> {
        Ringing(pair.batch().ok())
    }
}

impl Post for Ringing<'_> {
    #[inline]
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let batch = self.0.as_mut().ok_or(PostError::BadState)?;
        batch.post_send(request).map_err(queue_error)
    }

    #[inline]
    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let batch = self.0.as_mut().ok_or(PostError::BadState)?;
        batch.post_recv(request).map_err(queue_error)
    }
}

impl PostPrism for Ringing<'_> {
    #[inline]
    fn post_prism(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        let batch = self.0.as_mut().ok_or(PostError::BadState)?;
        batch.post_prism(request).map_err(queue_error)
    }
}

/// Receive requests for a queue pair that does not exist yet. A server creates its grant before it answers
/// the client.
#[derive(Default)]
pub struct Later(Vec<(u64, Vec<Sge>)>);

impl Post for Later {
    fn post_send(&mut self, _: &WorkRequest<'_>) -> Result<(), PostError> {
        Err(PostError::BadState)
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.0.push((request.id, request.sges.to_vec()));
        Ok(())
    }
}

impl Later {
    /// Posts the receive requests.
    pub fn post(&self, pair: &mut QueuePair<Init>) -> Result<(), remora_verbs::PostError> {
        self.0.iter().try_for_each(|(id, sges)| pair.post_recv(&ReceiveRequest { id: *id, sges }))
    }
}

/// Returns a region in the form that the stores use.
pub fn registered(region: &MemoryRegion) -> Registered {
    let bytes = region.bytes().expect("regions of the stores are allocated here").clone();
    Registered { bytes, addr: region.address(), key: region.lkey() }
}

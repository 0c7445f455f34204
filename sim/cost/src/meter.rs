//! A kernel wrapper that records steps, for hardware models.

use std::sync::{Arc, Mutex, PoisonError};

use remora_nic::kernel::{Kernel, Progress, Streams};

use crate::strom::Stepped;

/// The recorded steps of a kernel, in order.
pub(crate) type Steps = Arc<Mutex<Vec<Stepped>>>;

/// A kernel whose steps are recorded.
pub(crate) struct Metered<K> {
    kernel: K,
    steps: Steps,
}

impl<K: Kernel> Metered<K> {
    /// Wraps a kernel. Returns the wrapper and the record of its steps.
    pub(crate) fn new(kernel: K) -> (Metered<K>, Steps) {
        let steps = Steps::default();
        (Metered { kernel, steps: steps.clone() }, steps)
    }
}

impl<K: Kernel> Kernel for Metered<K> {
    fn step(&mut self, streams: &mut Streams<'_, '_>) -> Progress {
        let given = streams.data().map_or(0, <[u8]>::len) as u32;
        let waiting = streams.input().map_or(0, |input| input.bytes.len()) as u32;
        let progress = self.kernel.step(streams);
        let taken = if streams.is_taken() { waiting } else { 0 };
        let step = Stepped { taken, given, asked: streams.asked(), written: streams.written() };
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).push(step);
        progress
    }

    fn reset(&mut self) {
        self.kernel.reset();
    }
}

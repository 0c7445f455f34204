//! Fatal errors of the NIC, such as the loss of its network port.

use super::Nic;
use crate::event::AsyncEvent;

impl Nic {
    /// Puts every queue pair into the error state, which flushes its work requests, and reports
    /// [`AsyncEvent::DeviceFatal`] (IBTA vol. 1 §11.6.3.3). So every posted work request completes.
    pub(crate) fn fail(&mut self) {
        for index in 0..self.qps.len() as u32 {
            if let Some(qp) = &mut self.qps[index as usize] {
                qp.enter_error(&mut self.shared);
                self.attend(index);
            }
        }
        self.shared.event(AsyncEvent::DeviceFatal);
    }
}

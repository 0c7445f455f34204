//! Reports of a daemon's NIC: completions in armed queues, and asynchronous events. A thread of this process
//! receives them and passes them on, as the engine of a process's own NIC does.

use remora_host::{Channel, CqHook, EventHook, OpenError, wait_either};
use remora_nic::AsyncEvent;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::CreateError;
use crate::nicd::DaemonClient;
use crate::nicd::message::Request;

/// The receivers of a daemon's reports.
#[derive(Default)]
struct Receivers {
    queues: BTreeMap<u32, CqHook>,
    events: Option<EventHook>,
}

/// The reports of the NIC that a daemon lends.
pub(super) struct Reports {
    receivers: Arc<Mutex<Receivers>>,
    /// The number of the channel by which the daemon reports all completion queues.
    channel: u32,
}

impl std::fmt::Debug for Reports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reports").field("channel", &self.channel).finish_non_exhaustive()
    }
}

fn locked(receivers: &Mutex<Receivers>) -> MutexGuard<'_, Receivers> {
    receivers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reports {
    /// Asks the daemon for a channel, and starts the thread. The thread ends with `daemon`.
    ///
    /// # Errors
    /// The daemon refuses the channel, or the system a thread.
    pub(crate) fn new(daemon: &Arc<DaemonClient>) -> Result<Reports, OpenError> {
        let words = |error: CreateError| OpenError::Port(error.to_string());
        let (channel, socket) = daemon.create_channel().map_err(words)?;
        let receivers = Arc::new(Mutex::new(Receivers::default()));
        let completions = Channel::There(Arc::new(socket));
        let events = daemon.events().clone();
        let passed = Arc::clone(&receivers);
        let daemon = Arc::downgrade(daemon);
        let body = move || while passes_on(&daemon, &completions, &events, &passed) {};
        remora_port::spawn_settled("remora-reports".to_owned(), body)?;
        Ok(Reports { receivers, channel })
    }

    /// Sets the channel that reports the completions of a queue while it is armed.
    pub(crate) fn hook(
        &self,
        daemon: &DaemonClient,
        cq: u32,
        hook: Option<CqHook>,
    ) -> Result<(), CreateError> {
        let Some(hook) = hook else {
            locked(&self.receivers).queues.remove(&cq);
            return Ok(());
        };
        locked(&self.receivers).queues.insert(cq, hook);
        daemon.done(&Request::SetChannel { cq, tag: cq.into(), channel: self.channel })
    }

    /// Passes all asynchronous events to `hook` from now on.
    pub(crate) fn on_event(&self, hook: EventHook) {
        locked(&self.receivers).events = Some(hook);
    }
}

/// Waits for reports and passes them on. Returns false when there will be no more of them.
fn passes_on(
    daemon: &Weak<DaemonClient>,
    completions: &Channel,
    events: &Channel,
    receivers: &Mutex<Receivers>,
) -> bool {
    // Both sockets hang up when the daemon ends, or has ended the attachment of this process.
    let waited = wait_either(completions, events);
    while let Some(tag) = completions.take() {
        let known = locked(receivers);
        if let Some(hook) = u32::try_from(tag).ok().and_then(|cq| known.queues.get(&cq)) {
            hook.channel.put(hook.tag);
        }
    }
    let Some(daemon) = daemon.upgrade() else { return false };
    let hook = locked(receivers).events.clone();
    while let Some(event) = remora_nic::Device::take_event(&*daemon) {
        hook.iter().for_each(|hook| hook(event));
    }
    let is_over = waited.is_err() || daemon.is_gone();
    if is_over {
        hook.iter().for_each(|hook| hook(AsyncEvent::DeviceFatal));
    }
    !is_over
}

//! The thread of a device that notices the end of the broker, and publishes the device's counters.

use remora_host::Signal;
use remora_memory::ForkMark;
use remora_port::udp::SharedPage;
use remora_verbs::{Context, Counters};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Neighbours, PortEvents, Range};

/// Time between two readings of the counters while they rise. A reading makes other threads wait for the
/// engine.
const BUSY: Duration = Duration::from_millis(100);
/// The longest time between two readings.
const IDLE: Duration = Duration::from_millis(3200);

/// A thread of a device on a shared address. Dropping it ends the thread, and publishes the counters once
/// more.
pub struct Watch {
    stop: Arc<Signal<()>>,
    publish: Arc<dyn Fn() -> u64 + Send + Sync>,
    thread: Option<JoinHandle<()>>,
    fork: ForkMark,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch {
    /// Starts the thread for a device on the range's first address. If the broker goes away, the device fails
    /// ([`Context::fail`]).
    ///
    /// # Errors
    /// The operating system gives no descriptor or no thread.
    pub fn start(range: &Range, context: &Context) -> io::Result<Watch> {
        let counted = context.clone();
        let failing = context.clone();
        Watch::of(range, None, None, move || counted.counters(), move || failing.fail())
    }

    /// Starts the thread for a device that another library opened on the range. `counters` reads the device's
    /// counters, and `fail` is called once, when the broker is gone. Both run on the thread, which also adds
    /// the links of `neighbours`, and passes on the events of the `port`.
    ///
    /// # Errors
    /// The operating system gives no descriptor or no thread.
    pub fn of(
        range: &Range,
        neighbours: Option<Arc<Neighbours>>,
        port: Option<PortEvents>,
        counters: impl Fn() -> Counters + Send + Sync + 'static,
        fail: impl FnOnce() + Send + 'static,
    ) -> io::Result<Watch> {
        let stop = Arc::new(Signal::new(1)?);
        let stopped = Arc::clone(&stop);
        let range = range.clone();
        let page = range.endpoint().clone();
        let publish: Arc<dyn Fn() -> u64 + Send + Sync> = Arc::new(move || publish(page.page(), &counters));
        let publishes = Arc::clone(&publish);
        let body = move || {
            let end = watch(&stopped, &range, neighbours.as_deref(), port.as_ref(), &*publishes);
            if let Some(neighbours) = &neighbours {
                neighbours.end();
            }
            if end == End::Broker {
                tracing::error!("the broker of {} is gone: the device fails", range.endpoint().local());
                fail();
            }
            publishes();
        };
        let thread = remora_port::spawn_settled("remora-watch".to_owned(), body)?;
        Ok(Watch { stop, publish, thread: Some(thread), fork: ForkMark::get() })
    }
}

impl Watch {
    /// Publishes the counters now, because the process may end before the thread does.
    pub fn publish(&self) {
        if !self.fork.is_child() {
            (self.publish)();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.fork.is_child() {
            std::mem::forget(self.thread.take());
            return;
        }
        self.stop.put(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Publishes the counters and returns their sum.
fn publish(page: &SharedPage, counters: impl Fn() -> Counters) -> u64 {
    let counters = counters();
    page.publish(counters.each().map(|(_, _, value)| value));
    counters.each().fold(0, |sum, (_, _, value)| sum.wrapping_add(value))
}

/// The reason why a watch ended.
#[derive(Copy, Clone, PartialEq, Eq)]
enum End {
    Device,
    Broker,
}

/// Waits until the broker or the device ends.
fn watch(
    stop: &Signal<()>,
    range: &Range,
    neighbours: Option<&Neighbours>,
    port: Option<&PortEvents>,
    publish: &dyn Fn() -> u64,
) -> End {
    let mut introduced = true;
    let mut port = port;
    let mut pause = BUSY;
    let mut before = publish();
    loop {
        let timeout = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
        // The broker sends nothing unasked on this connection, so only its hang-up matters.
        let broker = range.broker();
        let mut waited =
            vec![PollFd::new(stop, PollFlags::IN), PollFd::from_borrowed_fd(broker, PollFlags::empty())];
        let looks = neighbours.filter(|_| introduced);
        waited.extend(looks.iter().flat_map(|neighbours| neighbours.waits_for()));
        let links = waited.len();
        waited.extend(port.map(|port| PollFd::from_borrowed_fd(port.descriptor(), PollFlags::IN)));
        match poll(&mut waited, Some(&timeout)) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            // The process's limit of descriptors is below the number of these.
            Err(_) => {
                std::thread::sleep(BUSY);
                continue;
            }
        }
        if let Some(neighbours) = looks
            && waited[2..links].iter().any(|waited| !waited.revents().is_empty())
        {
            // Without the socket there are no more links, and everything uses UDP.
            introduced = neighbours.look();
        }
        let changed = waited[links..].iter().any(|waited| !waited.revents().is_empty());
        port = port.filter(|port| !changed || port.look());
        if !waited[0].revents().is_empty() {
            return End::Device;
        }
        if !waited[1].revents().is_empty() {
            return End::Broker;
        }
        let now = publish();
        pause = if now == before { (pause * 2).min(IDLE) } else { BUSY };
        before = now;
    }
}

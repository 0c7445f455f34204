//! The HTTP endpoint for `GET /metrics`: one thread waits and a few answer. When [`TOGETHER_MAX`]
//! connections are open, a new one causes the oldest to be closed.
//!
//! The endpoint must not become a way to harm the program. Therefore the size of a request's head, its time
//! and the number of requests at once are bounded, and httparse parses all input. Each connection carries
//! one request.

use super::text::{CONTENT_TYPE, Family, write};
use remora_memory::ForkMark;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum size in bytes of a request's head; a longer one is answered with 431.
pub const HEAD_BYTES_MAX: usize = 8192;
/// Maximum number of open connections; one more causes the oldest to be closed.
pub const TOGETHER_MAX: usize = 8;
/// Maximum number of threads, including those that are ending; a connection beyond that is answered with
/// 503.
const THREADS_MAX: usize = 2 * TOGETHER_MAX;
/// Time from accepting a connection to the last byte sent; a slower client is answered with 408 or cut off.
pub const DEADLINE: Duration = Duration::from_secs(2);
/// Time for informing a client that it was too slow, or that the endpoint is full.
const GRACE: Duration = Duration::from_millis(50);

/// The reason why an endpoint could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another process already listens at this address.
    #[error(
        "metrics: {0} is taken: choose another port (0 takes a free one), or see who has it with `ss -ltnp`"
    )]
    Taken(SocketAddr),
    /// This user may not listen at this address.
    #[error("metrics: may not listen on {0}: ports below 1024 need root, choose a higher one")]
    Forbidden(SocketAddr),
    /// Another error of the system.
    #[error("metrics: cannot listen on {0}: {1}")]
    System(SocketAddr, io::Error),
}

/// Serves metrics until it is dropped.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    listener: Arc<TcpListener>,
    stopped: Arc<AtomicBool>,
    waiter: Option<JoinHandle<()>>,
    fork: ForkMark,
}

impl Endpoint {
    /// Listens on `address` and answers each request with a fresh snapshot. With port 0 the system chooses
    /// a port.
    ///
    /// # Errors
    /// [`StartError`] if the address cannot be listened on.
    pub fn start<F>(address: SocketAddr, snapshot: F) -> Result<Endpoint, StartError>
    where
        F: Fn() -> Vec<Family> + Send + Sync + 'static,
    {
        let refused = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => StartError::Taken(address),
            io::ErrorKind::PermissionDenied => StartError::Forbidden(address),
            _ => StartError::System(address, error),
        };
        let listener = Arc::new(TcpListener::bind(address).map_err(refused)?);
        let bound = listener.local_addr().map_err(refused)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let waiter = thread::Builder::new().name("remora-metrics".to_owned());
        let ear = Arc::clone(&listener);
        let stop = Arc::clone(&stopped);
        let waiter = waiter.spawn(move || wait(&ear, &stop, &snapshot)).map_err(refused)?;
        Ok(Endpoint { address: bound, listener, stopped, waiter: Some(waiter), fork: ForkMark::get() })
    }

    /// Returns the address and TCP port of the endpoint.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    /// Stops listening and waits for the requests in progress, little longer than [`DEADLINE`]. In a forked
    /// child does neither, because the socket and the thread belong to the parent.
    fn drop(&mut self) {
        if self.fork.is_child() {
            std::mem::forget(self.waiter.take());
            return;
        }
        self.stopped.store(true, Ordering::Release);
        // On Linux this ends a blocked `accept` with an error. It needs no descriptor, which the process
        // might not have left.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        if let Some(waiter) = self.waiter.take() {
            let _ = waiter.join();
        }
    }
}

/// Accepts connections until stopped, and hands each to a thread of its own.
fn wait(listener: &TcpListener, stopped: &AtomicBool, snapshot: &(impl Fn() -> Vec<Family> + Sync)) {
    let threads = AtomicUsize::new(0);
    let open = OpenConnections::default();
    thread::scope(|scope| {
        while !stopped.load(Ordering::Acquire) {
            let Ok((stream, _)) = listener.accept() else {
                // The endpoint was stopped, or the client has gone, or there are no descriptors left. In
                // the latter cases it tries once more after a pause.
                if !stopped.load(Ordering::Acquire) {
                    thread::sleep(Duration::from_millis(10));
                }
                continue;
            };
            let mut connection = Connection { stream, until: Instant::now() + DEADLINE };
            let Some(thread) = Thread::count(&threads) else {
                // A refusal must not delay another request for long.
                connection.until = Instant::now() + GRACE;
                let _ = connection.answer(Response::plain("503 Service Unavailable"), true);
                let _ = connection.hang_up();
                continue;
            };
            // Without a descriptor or a thread the connection closes, and the client retries.
            let Ok(number) = open.add(&connection.stream) else { continue };
            let open = &open;
            let answering = thread::Builder::new().name("remora-metrics".to_owned());
            let begun = answering.spawn_scoped(scope, move || {
                let _thread = thread;
                let _ = connection.serve(snapshot);
                open.remove(number);
            });
            if begun.is_err() {
                open.remove(number);
            }
        }
    });
}

/// The open connections, in the order of their arrival.
#[derive(Default)]
struct OpenConnections {
    all: Mutex<BTreeMap<u64, TcpStream>>,
    next: AtomicU64,
}

impl OpenConnections {
    /// Adds a connection and returns its number. Closes the oldest one if there are too many.
    fn add(&self, stream: &TcpStream) -> io::Result<u64> {
        let stream = stream.try_clone()?;
        let mut all = self.lock();
        if all.len() >= TOGETHER_MAX
            && let Some((_, oldest)) = all.pop_first()
        {
            // This ends every wait of the thread that serves the connection.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        all.insert(number, stream);
        Ok(number)
    }

    fn remove(&self, number: u64) {
        self.lock().remove(&number);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, TcpStream>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A counted thread, of which there are at most [`THREADS_MAX`]. Dropping the value decrements the count.
struct Thread<'a>(&'a AtomicUsize);

impl<'a> Thread<'a> {
    fn count(all: &'a AtomicUsize) -> Option<Thread<'a>> {
        let thread = Thread(all);
        (all.fetch_add(1, Ordering::AcqRel) < THREADS_MAX).then_some(thread)
    }
}

impl Drop for Thread<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An HTTP response.
struct Response {
    status: &'static str,
    body: String,
    media: &'static str,
}

impl Response {
    fn plain(status: &'static str) -> Response {
        Response { status, body: format!("{status}\n"), media: "text/plain; charset=utf-8" }
    }
}

struct Connection {
    stream: TcpStream,
    until: Instant,
}

impl Connection {
    fn serve(&mut self, snapshot: &impl Fn() -> Vec<Family>) -> io::Result<()> {
        let (answer, with_body) = match self.head() {
            Ok(head) => (route(&head, snapshot), head.method != "HEAD"),
            Err(Refusal::Status(status)) => {
                self.until = self.until.max(Instant::now() + GRACE);
                (Response::plain(status), true)
            }
            Err(Refusal::Gone(error)) => return Err(error),
        };
        self.answer(answer, with_body)?;
        self.hang_up()
    }

    /// Reads the request's head, and no byte after it.
    fn head(&mut self) -> Result<Head, Refusal> {
        let mut bytes = [0; HEAD_BYTES_MAX];
        let mut filled = 0;
        loop {
            let left = self.left().ok_or(Refusal::Status("408 Request Timeout"))?;
            self.stream.set_read_timeout(Some(left)).map_err(Refusal::Gone)?;
            match self.stream.read(&mut bytes[filled..]) {
                Ok(0) => return Err(Refusal::Gone(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => filled += count,
                Err(error) if is_slow(&error) => continue,
                Err(error) => return Err(Refusal::Gone(error)),
            }
            if let Some(head) = parse(&bytes[..filled])? {
                return Ok(head);
            }
            if filled == bytes.len() {
                return Err(Refusal::Status("431 Request Header Fields Too Large"));
            }
        }
    }

    fn answer(&mut self, answer: Response, with_body: bool) -> io::Result<()> {
        let Response { status, body, media } = answer;
        let mut text = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        if status.starts_with("405") {
            text = text.replace("Connection:", "Allow: GET, HEAD\r\nConnection:");
        }
        if with_body {
            text.push_str(&body);
        }
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let left = self.left().ok_or(io::ErrorKind::TimedOut)?;
            self.stream.set_write_timeout(Some(left))?;
            match self.stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if is_slow(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Shuts down the sending side, then reads until the client has hung up as well. Closing with unread
    /// bytes would reset the connection, and the client could lose the answer.
    fn hang_up(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        let mut unread = [0; 1024];
        for _ in 0..64 {
            let Some(left) = self.left() else { break };
            self.stream.set_read_timeout(Some(left))?;
            if self.stream.read(&mut unread)? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Returns the remaining time, if any.
    fn left(&self) -> Option<Duration> {
        self.until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}

fn is_slow(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// The reason why a request is not answered with metrics.
enum Refusal {
    Status(&'static str),
    Gone(io::Error),
}

struct Head {
    method: String,
    target: String,
}

/// Parses the head in `bytes`; `None` while it is incomplete.
fn parse(bytes: &[u8]) -> Result<Option<Head>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {
            let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
            Ok(Some(Head { method: text(request.method), target: text(request.path) }))
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => Err(Refusal::Status("431 Request Header Fields Too Large")),
        Err(_) => Err(Refusal::Status("400 Bad Request")),
    }
}

fn route(head: &Head, snapshot: &impl Fn() -> Vec<Family>) -> Response {
    let path = head.target.split('?').next().unwrap_or_default();
    match (head.method.as_str(), path) {
        ("GET" | "HEAD", "/metrics") => {
            Response { status: "200 OK", body: write(&snapshot()), media: CONTENT_TYPE }
        }
        ("GET" | "HEAD", _) => Response {
            body: "404 Not Found: the metrics are at /metrics\n".to_owned(),
            ..Response::plain("404 Not Found")
        },
        _ => Response::plain("405 Method Not Allowed"),
    }
}

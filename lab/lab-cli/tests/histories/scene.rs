//! A run: servers, clients at work, mishaps one after the other, and the check of each mishap by the
//! history.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use remora_check::{History, Measures, Operation, Outcome, Requirements, Violation, hold};
use remora_store::Random;

use crate::hosts::Hosts;
use crate::party::{Client, Server, now, read, until};

/// Number of history clients per process; `remora ... exercise` numbers them in this way.
const LANES: u32 = 1 << 10;

/// Kinds of mishaps that [`Scene::mishaps`] causes.
pub(crate) const KINDS: [&str; 5] =
    ["client killed", "client stopped", "client cut off", "server stopped", "server cut off"];

/// The processes that a mishap affects.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    /// The client with this number.
    Client(u32),
    /// A part without which no operation can complete.
    All,
    /// A server that no operation needs.
    Some,
    /// A server that only some operations need.
    Part,
}

/// A time span in which a process was stopped or cut off.
#[derive(Copy, Clone, Debug)]
struct Span {
    kind: &'static str,
    scope: Whom,
    start: u64,
    end: u64,
}

/// The duration of a mishap.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Length {
    /// Shorter than retries last.
    Short,
    /// Longer than retries last: until a client has recorded that its connection failed, or others have
    /// shown that they do not need the affected process.
    Long,
}

/// State of a run.
pub(crate) struct Scene {
    pub hosts: Hosts,
    pub servers: Vec<Server>,
    pub clients: Vec<Client>,
    /// Arguments of each client.
    words: Vec<String>,
    /// True if clients record when their connection fails.
    pub notes_failures: bool,
    pub random: Random,
    folder: PathBuf,
    /// History files of killed clients.
    dead: Vec<PathBuf>,
    numbers: u32,
    spans: Vec<Span>,
    /// Number of mishaps of each kind that the history shows.
    pub fired: BTreeMap<&'static str, usize>,
}

impl Scene {
    /// Creates a run with these servers. All clients get the arguments `words`.
    pub(crate) fn new(hosts: Hosts, servers: Vec<Server>, seed: u64, words: &[&str]) -> Scene {
        let id = std::thread::current().name().unwrap_or("run").replace(|c: char| !c.is_alphanumeric(), "-");
        let folder = tempfile::Builder::new().prefix(&id).tempdir().expect("a folder").keep();
        std::fs::create_dir_all(&folder).expect("a folder");
        Scene {
            hosts,
            servers,
            clients: Vec::new(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            notes_failures: false,
            random: Random::new(seed),
            folder,
            dead: Vec::new(),
            numbers: 0,
            spans: Vec::new(),
            fired: BTreeMap::new(),
        }
    }

    /// Starts a client on this host, with further arguments.
    pub(crate) fn enter(&mut self, host: usize, more: &[&str]) {
        let address = self.hosts.address(host);
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let seed = self.random.below(1 << 32).to_string();
        let own = ["--port", "udp", "--address", &address, "--seed", &seed, "--seconds", "1000000"];
        let command = self.hosts.remora(host, &[&words[..], &own, more].concat());
        self.clients.push(Client::start(command, host, self.numbers, &self.folder));
        self.numbers += 1;
    }

    /// Returns the numbers of operations that the clients have completed so far.
    fn done(&mut self) -> Vec<usize> {
        self.clients.iter_mut().for_each(Client::look);
        self.clients.iter().map(|client| client.done).collect()
    }

    /// Waits until each client has completed `more` further operations.
    #[track_caller]
    pub(crate) fn all_go_on(&mut self, more: usize) {
        let before = self.done();
        until("all clients go on", || {
            self.done().iter().zip(&before).all(|(done, before)| *done >= before + more)
        });
    }

    /// Waits until the clients together have completed `more` further operations.
    #[track_caller]
    pub(crate) fn some_go_on(&mut self, more: usize) {
        let before: usize = self.done().iter().sum();
        until("clients go on", || self.done().iter().sum::<usize>() >= before + more);
    }

    /// Waits until a client records operations with unknown outcome.
    #[track_caller]
    fn connection_fails(&mut self, scope: Whom) {
        let count = |scene: &mut Scene| -> usize {
            scene.done();
            let hit = |client: &&Client| match scope {
                Whom::Client(number) => client.number == number,
                _ => true,
            };
            scene.clients.iter().filter(hit).map(|client| client.unknown).sum()
        };
        let before = count(self);
        until("a connection fails", || count(self) > before);
    }

    fn any_client(&mut self) -> usize {
        self.random.below(self.clients.len() as u64) as usize
    }

    /// Keeps the present mishap for its duration, and records its time span.
    #[track_caller]
    fn last(&mut self, kind: &'static str, scope: Whom, length: Length) {
        let start = now();
        let pause = |milliseconds| std::thread::sleep(Duration::from_millis(milliseconds));
        match length {
            Length::Short => pause(30 + self.random.below(170)),
            Length::Long if scope == Whom::Some => {
                pause(800);
                self.some_go_on(30);
            }
            Length::Long if self.notes_failures => self.connection_fails(scope),
            Length::Long => pause(1800),
        }
        self.spans.push(Span { kind, scope, start, end: now() });
    }

    /// Kills a client in the middle of an operation, and starts another one on its host.
    #[track_caller]
    pub(crate) fn kill_client(&mut self) {
        self.all_go_on(2);
        let index = self.any_client();
        let mut client = self.clients.swap_remove(index);
        client.stop_in_the_middle();
        client.process.kill();
        *self.fired.entry("client killed").or_default() += 1;
        self.dead.push(client.history.clone());
        self.enter(client.process.host, &[]);
    }

    /// Stops a client with SIGSTOP and continues it. If the stop is long, its server has meanwhile given up
    /// the connection.
    #[track_caller]
    pub(crate) fn stop_client(&mut self, length: Length) {
        self.all_go_on(2);
        let index = self.any_client();
        let scope = Whom::Client(self.clients[index].number);
        self.clients[index].stop_in_the_middle();
        let notes = std::mem::replace(&mut self.notes_failures, false);
        self.last("client stopped", scope, length);
        self.notes_failures = notes;
        self.clients[index].process.go_on();
    }

    /// Cuts the link of a client and restores it.
    #[track_caller]
    pub(crate) fn cut_client(&mut self, length: Length) {
        self.all_go_on(2);
        let index = self.any_client();
        let scope = Whom::Client(self.clients[index].number);
        let host = self.clients[index].process.host;
        self.hosts.cut(host, true);
        self.last("client cut off", scope, length);
        self.hosts.cut(host, false);
    }

    /// Stops a server and continues it.
    #[track_caller]
    pub(crate) fn stop_server(&mut self, index: usize, scope: Whom, length: Length) {
        self.all_go_on(2);
        self.servers[index].process.stop();
        self.last("server stopped", scope, length);
        self.servers[index].process.go_on();
    }

    /// Kills a server, and checks that the clients continue without it.
    #[track_caller]
    pub(crate) fn kill_server(&mut self, index: usize) {
        self.all_go_on(2);
        self.servers[index].process.kill();
        self.all_go_on(10);
        *self.fired.entry("server killed").or_default() += 1;
    }

    /// Adds a server in the place of a killed one, and checks that the clients continue.
    #[track_caller]
    pub(crate) fn replace_server(&mut self, index: usize, server: Server) {
        self.servers[index] = server;
        self.all_go_on(10);
        *self.fired.entry("server repaired").or_default() += 1;
    }

    /// Cuts the link of a server and restores it.
    #[track_caller]
    pub(crate) fn cut_server(&mut self, index: usize, scope: Whom, length: Length) {
        self.all_go_on(2);
        let host = self.servers[index].process.host;
        self.hosts.cut(host, true);
        self.last("server cut off", scope, length);
        self.hosts.cut(host, false);
    }

    /// Ends all clients and returns their common history.
    #[track_caller]
    pub(crate) fn finish(&mut self) -> History {
        self.all_go_on(2);
        self.clients.iter_mut().for_each(Client::finish);
        let mut history = History::default();
        let alive = self.clients.iter().map(|client| &client.history);
        alive.chain(&self.dead).for_each(|path| history.merge(read(path)));
        let operations = history.operations().expect("a history");
        for span in std::mem::take(&mut self.spans) {
            *self.fired.entry(span.kind).or_default() += usize::from(shows(&operations, &span));
        }
        history
    }

    /// Causes the mishap with this number, below 9: short or long, of a random client or of the given
    /// server.
    pub(crate) fn mishap(&mut self, number: u64, server: usize, scope: Whom) {
        match number {
            0 => self.kill_client(),
            1 => self.stop_client(Length::Short),
            2 => self.stop_client(Length::Long),
            3 => self.cut_client(Length::Short),
            4 => self.cut_client(Length::Long),
            5 => self.stop_server(server, scope, Length::Short),
            6 => self.stop_server(server, scope, Length::Long),
            7 => self.cut_server(server, scope, Length::Short),
            _ => self.cut_server(server, scope, Length::Long),
        }
    }

    /// Causes every mishap once, of random servers, in an order that the seed determines.
    pub(crate) fn mishaps(&mut self, scope: Whom) {
        let mut left: Vec<u64> = (0..9).collect();
        while !left.is_empty() {
            let index = self.random.below(left.len() as u64) as usize;
            let server = self.random.below(self.servers.len() as u64) as usize;
            self.mishap(left.swap_remove(index), server, scope);
        }
    }

    /// Checks the history with `judge`, that clients accessed the same keys concurrently, and that mishaps
    /// of all `kinds` happened.
    pub(crate) fn judge(
        &self,
        name: &str,
        history: &History,
        judge: fn(&History) -> Result<(), Violation>,
        kinds: &[&'static str],
    ) {
        println!("{:?}", self.fired);
        hold(name, history, judge);
        let fired: Vec<_> =
            self.fired.iter().filter(|(_, count)| **count > 0).map(|(kind, _)| *kind).collect();
        let mut measures = Measures::default();
        measures.add(history, &fired);
        measures.hold(&Requirements {
            histories: 1,
            clients: 8,
            keys: 16,
            overlapping: 0.3,
            faults: kinds,
            fired: 1.0,
        });
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return println!("what the clients recorded: {}", self.folder.display());
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns whether the history shows the mishap.
///
/// # Panics
/// Panics if an operation completed that the mishap must have prevented.
#[track_caller]
fn shows(operations: &[Operation], span: &Span) -> bool {
    let hit = |operation: &&Operation| match span.scope {
        Whom::Client(number) => operation.client / LANES == number,
        _ => true,
    };
    let of_those: Vec<&Operation> = operations.iter().filter(hit).collect();
    let inside = of_those.iter().find(|operation| {
        let ended = operation.ended.is_some_and(|ended| ended <= span.end);
        operation.outcome == Outcome::Done && operation.invoked >= span.start && ended
    });
    if span.scope == Whom::Some {
        // The other processes completed operations.
        return inside.is_some();
    }
    let possible = inside.is_none() || span.scope == Whom::Part;
    assert!(possible, "{span:?}, and yet {}", inside.expect("one"));
    // An operation in progress was delayed until after the mishap.
    of_those.iter().any(|operation| {
        let held = operation.ended.is_none_or(|ended| ended > span.end);
        operation.invoked < span.end && (held || operation.outcome == Outcome::Unknown)
    })
}

//! A server that is stopped (SIGSTOP) at random moments of writes. The test maps the server's memory, so
//! that it sees the bytes while the server does not run.
//!
//! `docs/reference/rma.md` promises two things: after a TIMEOUT nothing changes if the server was stopped
//! for no
//! longer than the guard, and after a settle nothing changes at all.
//! longer than the guard; and after a settle nothing changes at all.

use crate::bed::{MS, options, share};
use crate::process::{self, Mapped};
use remora_fault::Random;
use remora_netns::Process;
use remora_verbs::rma::{Grant, Portal, Rights, RmaError, RmaRegion, Settings, Status, Timers};
use remora_verbs::{Access, Context, Device};
use remora_wire::rma::{Class, Kind};
use std::time::{Duration, Instant};

/// Random moments of a whole run, for each test.
const MOMENTS: u64 = 1_000;
/// Length of a write in bytes: as many commands of 4 KB as can be in progress at a time.
const LEN: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(30);

fn settings(guard: u64) -> Settings {
    Settings {
        timers: Timers::Fixed,
        dispatch_timeout: 15 * MS,
        timeout: 20 * MS,
        max_server_timeout: 20 * MS,
        guard,
        ..Settings::software()
    }
}

fn udp() -> Device {
    Device::udp("127.0.0.1:0").unwrap()
}

/// The entry point of the server process.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn acts_its_role() {
    let file = std::env::var(process::ROLE).expect("set by the test that starts this process");
    let (context, rma, _region) = process::serve(&udp(), file.into(), LEN, settings(0));
    process::until_told();
    println!("late {} serving {}", context.counters().rma_late_pieces, rma.facts().unwrap().serving);
}

/// A server process and a client of it.
struct Setup {
    server: Process,
    memory: Mapped,
    local: RmaRegion,
    portal: Portal,
    grant: Grant,
    random: Random,
    // Kept alive for the portal's NIC.
    _context: Context,
}

impl Setup {
    fn new(name: &str, guard: u64) -> Setup {
        let memory = Mapped::create(name, LEN);
        let mut server =
            Process::start_piped(&mut process::command(module_path!(), memory.path.to_str().unwrap()));
        let words = server.line_with("serving ");
        std::fs::remove_file(&memory.path).unwrap();
        let context = udp().open().unwrap();
        let rma = context.open_rma(&options(settings(guard))).unwrap();
        let domain = context.alloc_pd().unwrap();
        let local =
            rma.expose(domain.allocate(LEN, Access::LOCAL_WRITE).unwrap(), Rights::NONE, None).unwrap();
        let portal = rma.create_portal(&domain, 16).unwrap();
        let grant = process::grant(&words, &portal.identity(), &local);
        Setup { server, memory, local, portal, grant, random: Random::new(19), _context: context }
    }

    /// Begins a write of all bytes, and stops the server at a random moment for about `stop`. Returns the
    /// status of the write, and the server's memory at its end.
    fn stopped_write(&mut self, round: u64, stop: Duration) -> (Status, Vec<u8>) {
        let bytes: Vec<u8> = (0..LEN).map(|index| (index as u64 / 4096 + 7 * round) as u8).collect();
        self.local.memory().write(0, &bytes).unwrap();
        let Setup { portal, local, grant, .. } = self;
        let write = portal.submit(Kind::Write, Class::Latency, local, 0, grant, 0, LEN as u64, None).unwrap();
        let moment = Instant::now() + Duration::from_nanos(self.random.below(400_000));
        let mut ended = None;
        let mut poll = |portal: &mut Portal| {
            if let Some((id, status)) = portal.poll().unwrap() {
                assert_eq!(id, write);
                ended = Some((status, self.memory.load()));
            }
            ended.is_some()
        };
        while Instant::now() < moment {
            poll(portal);
        }
        process::signal(&self.server, libc::SIGSTOP);
        process::wait_until_stopped(&self.server);
        let over = Instant::now() + stop;
        while Instant::now() < over {
            poll(portal);
        }
        process::signal(&self.server, libc::SIGCONT);
        while !poll(portal) {}
        let (status, seen) = ended.unwrap();
        assert!(status != Status::Ok || seen == bytes, "round {round}: a successful write is incomplete");
        (status, seen)
    }

    fn settle(&mut self) -> Vec<u8> {
        self.portal.settle(&self.local, 0, &self.grant, PATIENCE).unwrap();
        self.memory.load()
    }

    /// Ends the server. Returns the number of pieces that it dropped as late.
    fn end(self) -> u64 {
        let late = process::last_words(self.server, "late ");
        late.split(' ').next().unwrap().parse().unwrap()
    }
}

/// Stops of 1 to 60 ms with a guard of 200 ms: the memory does not change after a TIMEOUT.
#[test]
fn rma_attack_19_a_server_stopped_for_less_than_the_guard_changes_nothing_after_a_timeout() {
    let mut setup = Setup::new("shorter", 200 * MS);
    let mut timeouts = 0;
    for round in 0..share(MOMENTS) {
        let stop = Duration::from_micros(setup.random.between(1_000, 60_000));
        let (status, seen) = setup.stopped_write(round, stop);
        let settled = setup.settle();
        timeouts += u64::from(status == Status::Timeout);
        assert!(seen == settled, "round {round}: changed after {status:?}");
        assert!(setup.settle() == settled, "round {round}: changed after a settle");
    }
    println!("{timeouts} timeouts, {} late pieces", setup.end());
    assert!(timeouts > 0);
}

/// Stops of 30 to 90 ms with a guard of 1 ms: late pieces are dropped, and the memory does not change after
/// a settle. Between TIMEOUT and settle, only a piece can change it that was being copied when the server
/// was stopped.
#[test]
fn rma_attack_19_a_server_stopped_for_longer_than_the_guard_changes_nothing_after_a_settle() {
    let mut setup = Setup::new("longer", MS);
    let mut timeouts = 0;
    let mut changed = 0;
    for round in 0..share(MOMENTS) {
        let stop = Duration::from_micros(setup.random.between(30_000, 90_000));
        let (status, seen) = setup.stopped_write(round, stop);
        let settled = setup.settle();
        timeouts += u64::from(status == Status::Timeout);
        changed += u64::from(seen != settled);
        assert!(setup.settle() == settled, "round {round}: changed after a settle");
    }
    let late = setup.end();
    println!("{timeouts} timeouts, {changed} changes after one, {late} late pieces");
    assert!(timeouts > 0 && late > 0, "pieces wait while the server is stopped");
    assert!(changed * 5 <= timeouts, "late pieces changed memory after {changed} of {timeouts} timeouts");
}

/// A server that stays stopped does not answer, so a settle fails.
#[test]
fn a_server_that_stays_stopped_settles_nothing() {
    let mut setup = Setup::new("silent", MS);
    process::signal(&setup.server, libc::SIGSTOP);
    process::wait_until_stopped(&setup.server);
    let silent = setup.portal.settle(&setup.local, 0, &setup.grant, Duration::from_millis(50));
    assert_eq!(silent, Err(RmaError::Failed(Status::Timeout)));
    process::signal(&setup.server, libc::SIGCONT);
    setup.settle();
    setup.end();
}

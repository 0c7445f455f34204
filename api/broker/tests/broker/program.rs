//! A program: a process with a device on a shared address, which executes the commands of a test line by
//! line.

use remora_broker::client::{self, Options, SharedDevice, Start};
use remora_netns::Process;
use remora_verbs::{
    Access, AsyncEvent, CompletionQueue, EMPTY, Listener, MemoryRegion, ProtectionDomain, QpOptions,
    QueuePair, RemoteMemory, Status, work,
};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::LONG;

/// Environment variable with a program's address, which makes `a_program` act.
const ADDRESS: &str = "REMORA_TEST_ADDRESS";
/// Environment variable with the address at which a program listens, instead of the loopback interface.
const LISTEN: &str = "REMORA_TEST_LISTEN";
/// Length in bytes of each program's table, and of one WRITE.
const LEN: usize = 64 << 10;

/// A running program.
pub(crate) struct Program {
    process: Process,
    /// The QPN range that was lent to the program.
    pub range: u8,
    /// The TCP address at which the program listens.
    pub listens: String,
}

impl Program {
    /// Starts a program on this address.
    #[track_caller]
    pub(crate) fn start(address: &str) -> Program {
        Program::of(crate::own::test(module_path!(), "a_program"), address)
    }

    /// Starts a program that listens at its device's address.
    #[track_caller]
    pub(crate) fn start_at(address: &str) -> Program {
        let mut command = crate::own::test(module_path!(), "a_program");
        command.env(LISTEN, address);
        Program::of(command, address)
    }

    /// Starts a program as another user.
    #[track_caller]
    pub(crate) fn of_user(uid: &str, address: &str) -> Program {
        let own = crate::own::test(module_path!(), "a_program");
        let mut command = Command::new("setpriv");
        command.args(["--reuid", uid, "--regid", uid, "--clear-groups"]);
        command.arg(own.get_program()).args(own.get_args());
        Program::of(command, address)
    }

    /// Starts a program that has the address alone, with the broker as a thread.
    #[track_caller]
    pub(crate) fn alone(address: &str) -> Program {
        let mut command = crate::own::test(module_path!(), "a_program");
        command.env(client::ALONE, "1");
        Program::of(command, address)
    }

    #[track_caller]
    fn of(mut command: Command, address: &str) -> Program {
        let mut process = Process::start_piped(command.env(ADDRESS, address));
        let line = process.line_with("range ");
        let (range, listens) = line.split_once(' ').unwrap();
        Program { process, range: range.parse().unwrap(), listens: listens.to_owned() }
    }

    /// Sends a command.
    pub(crate) fn tell(&mut self, line: &str) {
        self.process.send(line);
    }

    /// Returns the rest of the program's next line that contains this word.
    #[track_caller]
    pub(crate) fn hear(&mut self, word: &str) -> String {
        self.process.line_with(word)
    }

    /// Sends a command, and waits for the answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear(&format!("{}: ", line.split(' ').next().unwrap()))
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Waits until the program ends by itself.
    #[track_caller]
    pub(crate) fn end(mut self) {
        self.tell("end");
        self.process.end();
    }
}

/// The objects of a program.
struct Bench {
    device: SharedDevice,
    domain: ProtectionDomain,
    cq: CompletionQueue,
    memory: MemoryRegion,
    pairs: Vec<(QueuePair, RemoteMemory)>,
}

/// The entry point of a program.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn a_program() {
    let address = std::env::var(ADDRESS).expect("set by the test that starts this process");
    let mut options = Options::from_environment();
    if options.start == Start::Search {
        options.start = Start::Never;
    }
    let device = client::open_device(crate::at(&address), &options, |device| device).unwrap();
    let domain = device.context().alloc_pd().unwrap();
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let table = domain.allocate(LEN, rights).unwrap();
    let listens = std::env::var(LISTEN).unwrap_or("127.0.0.1:0".to_owned());
    let listener = Listener::bind(&*listens).unwrap();
    println!("range {} {}", device.range().number(), listener.address());
    let serving = domain.clone();
    let cq = device.context().create_cq(256).unwrap();
    std::thread::spawn(move || {
        let mut served = Vec::new();
        while let Ok(request) = listener.accept(None) {
            let Some(request) = request else { continue };
            let private_data = table.remote_memory().to_bytes().to_vec();
            let pair =
                serving.create_qp(&cq, &cq, &QpOptions { private_data, ..QpOptions::default() }).unwrap();
            served.extend(request.accept(pair));
        }
    });
    let cq = device.context().create_cq(256).unwrap();
    let memory = domain.allocate(2 * LEN, Access::LOCAL_WRITE).unwrap();
    let mut bench = Bench { device, domain, cq, memory, pairs: Vec::new() };
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let says = match word {
            "connect" => bench.connect(rest),
            "work" => bench.work(rest.parse().unwrap()),
            "fatal" => bench.fatal(),
            "unknown" => bench.device.context().counters().unknown_qp.to_string(),
            "fork" => fork(),
            "fork-device" => fork_device(&bench, &address, &options),
            "end" => break,
            other => panic!("{other}"),
        };
        println!("{word}: {says}");
    }
    // Exit as a program does that leaves its objects to the system while other threads use them.
    drop(bench);
    std::process::exit(0);
}

impl Bench {
    fn connect(&mut self, address: &str) -> String {
        // A dead peer is noticed within about half a second. A peer that waits for a core is not taken for
        // dead.
        let options = QpOptions { timeout: 14, retry_cnt: 7, ..QpOptions::default() };
        let pair = self.domain.create_qp(&self.cq, &self.cq, &options).unwrap().connect(address).unwrap();
        let table = RemoteMemory::from_bytes(pair.peer_private_data()).unwrap();
        self.pairs.clear();
        self.pairs.push((pair, table));
        "done".to_owned()
    }

    /// Writes and reads back, `rounds` times. Returns the result, or the status that ended it.
    fn work(&mut self, rounds: u64) -> String {
        let context = self.device.context().clone();
        let Some((pair, table)) = self.pairs.last_mut() else { return "no peer".to_owned() };
        for round in 0..rounds {
            let len = 1 + (round as usize * 7919) % LEN;
            let data: Vec<u8> =
                (0..len).map(|index| (index as u64 ^ index as u64 >> 8 ^ round) as u8).collect();
            self.memory.write(0, &data).unwrap();
            let source = self.memory.sge(0, len);
            let back = self.memory.sge(LEN, len);
            for request in [work::write(1, &[source], table.at(0)), work::read(2, &[back], table.at(0))] {
                if let Err(error) = pair.post_send(&request) {
                    return format!("{error:?}");
                }
                let mut done = [EMPTY; 1];
                match self.cq.wait(&mut done, LONG) {
                    Ok(_) if done[0].status == Status::Success => {}
                    Ok(_) => return format!("{:?}", done[0].status),
                    Err(error) => return format!("{error:?}"),
                }
            }
            let mut read = vec![0; len];
            self.memory.read(LEN, &mut read).unwrap();
            assert!(read == data, "round {round}");
        }
        assert_eq!(context.counters().rx_icrc_encapsulated, 0);
        "right".to_owned()
    }

    /// Waits for the event of a failed device. Returns the results of a post and of polling after it.
    fn fatal(&mut self) -> String {
        let limit = Instant::now() + LONG;
        loop {
            match self.device.context().poll_event().map(|event| event.event) {
                Some(AsyncEvent::DeviceFatal) => break,
                _ if Instant::now() > limit => return "no event".to_owned(),
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        let work = self.work(1);
        let mut done = [EMPTY; 1];
        format!("{work} {:?}", self.cq.wait(&mut done, LONG).map(|_| done[0].status))
    }
}

/// Forks a child that has all of the program's descriptors and does nothing.
fn fork() -> String {
    // SAFETY: the child makes one system call after the other, and allocates nothing.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: sleeps until a signal ends it.
            unsafe { libc::pause() };
        }
    }
    child.to_string()
}

/// Forks a child that opens a device of its own, uses it with its parent, and drops the inherited objects.
fn fork_device(bench: &Bench, address: &str, options: &Options) -> String {
    // SAFETY: the test's other thread sleeps in a system call, and holds no lock that the child takes.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let opened = client::open_device(crate::at(address), options, |device| device);
        let good = opened.is_ok_and(|device| device.range().number() != bench.device.range().number());
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    let mut status = 0;
    // SAFETY: `status` is an int of ours.
    unsafe { libc::waitpid(child, &mut status, 0) };
    status.to_string()
}

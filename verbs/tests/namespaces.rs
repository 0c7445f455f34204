//! Two network namespaces with a veth pair between them: UDP over a real (if virtual) wire with an MTU of 1500. Needs root;
//! without it the test says so and ends.

use remora_verbs::{Access, Device, EMPTY, Listener, QpOptions, RemoteMemory, Status, work};
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const ROLE: &str = "REMORA_TEST_NAMESPACE_ROLE";
/// No test waits so long unless it hangs.
const LONG: Duration = Duration::from_secs(60);
const LEN: usize = 300_000;

/// Namespaces that go away with their test.
struct Namespaces([String; 2]);

fn ip(arguments: &str) -> Option<Output> {
    Command::new("ip").args(arguments.split(' ')).output().ok()
}

fn works(arguments: &str) -> bool {
    ip(arguments).is_some_and(|output| output.status.success())
}

impl Namespaces {
    fn new() -> Option<Namespaces> {
        let names = ["a", "b"].map(|end| format!("remora-{}-{end}", std::process::id()));
        let made = Namespaces(names);
        let [a, b] = &made.0;
        let id = std::process::id();
        let steps = [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add rv{id}a netns {a} type veth peer name rv{id}b netns {b}"),
            format!("-n {a} address add 10.213.7.1/24 dev rv{id}a"),
            format!("-n {b} address add 10.213.7.2/24 dev rv{id}b"),
            format!("-n {a} address add fd00:7::1/64 dev rv{id}a nodad"),
            format!("-n {b} address add fd00:7::2/64 dev rv{id}b nodad"),
            format!("-n {a} link set rv{id}a up"),
            format!("-n {b} link set rv{id}b up"),
        ];
        steps.iter().all(|step| works(step)).then_some(made)
    }

    /// This binary, as `role` in namespace `which`.
    fn run(&self, which: usize, role: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[which]]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "acts_its_role", "--nocapture"]).env(ROLE, role);
        command.stdout(Stdio::piped());
        command
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            ip(&format!("netns delete {name}"));
        }
    }
}

/// Not a test by itself: one of the two processes.
#[test]
fn acts_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (act, addresses) = role.split_once(' ').unwrap();
    let (own, server) = addresses.split_once(' ').unwrap();
    match act {
        "serve" => serve(own, server),
        _ => visit(own, server),
    }
}

fn shared() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ
}

fn serve(own: &str, address: &str) {
    let context = Device::udp(own).unwrap().open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let table = domain.allocate(LEN, shared()).unwrap();
    let mut cq = context.create_cq(16).unwrap();
    let listener = Listener::bind(address).unwrap();
    println!("listening");
    let options =
        QpOptions { private_data: table.remote_memory().to_bytes().to_vec(), ..QpOptions::default() };
    let mut pair = domain.create_qp(&cq, &cq, &options).unwrap();
    pair.post_recv(&remora_verbs::ReceiveRequest { id: 1, sges: &[] }).unwrap();
    let _pair = listener.accept(Some(LONG)).unwrap().unwrap().accept(pair).unwrap();
    // The client's last word.
    assert_eq!(cq.wait(&mut [EMPTY; 1], LONG), Ok(1));
    let counters = context.counters();
    assert_eq!((counters.malformed_pkts, counters.rx_icrc_encapsulated), (0, 0));
}

fn visit(own: &str, server: &str) {
    let context = Device::udp(own).unwrap().open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let memory = domain.allocate(LEN, shared()).unwrap();
    let mut cq = context.create_cq(16).unwrap();
    let mut pair = domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap().connect(server).unwrap();
    assert_eq!(pair.agreement().unwrap().path_mtu, 1024, "what fits into 1500 bytes");
    let table = RemoteMemory::from_bytes(pair.peer_private_data()).unwrap();
    let data: Vec<u8> = (0..LEN).map(|i| ((i * 7) ^ (i >> 9)) as u8).collect();
    memory.write(0, &data).unwrap();
    let mut done = [EMPTY; 1];
    let mut run = |request| {
        pair.post_send(&request).unwrap();
        assert_eq!(cq.wait(&mut done, LONG), Ok(1));
        assert_eq!(done[0].status, Status::Success);
    };
    let local = [memory.sge(0, LEN)];
    run(work::write(1, &local, table.at(0)));
    memory.write(0, &vec![0; LEN]).unwrap();
    run(work::read(2, &local, table.at(0)));
    let mut back = vec![0; LEN];
    memory.read(0, &mut back).unwrap();
    assert!(back == data);
    run(work::send(3, &[]));
}

#[test]
fn between_two_namespaces_over_veth() {
    let Some(namespaces) = Namespaces::new() else {
        // Past the test harness, which keeps what tests print.
        let _ = writeln!(
            std::io::stderr(),
            "between_two_namespaces_over_veth: not run, because making network namespaces needs CAP_SYS_ADMIN and iproute2"
        );
        return;
    };
    for (server, client, listen) in [
        ("10.213.7.1:4791", "10.213.7.2:4791", "10.213.7.1:7471"),
        ("[fd00:7::1]:4791", "[fd00:7::2]:0", "[fd00:7::1]:7471"),
    ] {
        let mut serving = namespaces.run(0, &format!("serve {server} {listen}"));
        let mut serving = serving.spawn().unwrap();
        let mut said = std::io::BufReader::new(serving.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening") {
            line.clear();
            assert!(std::io::BufRead::read_line(&mut said, &mut line).unwrap() > 0, "the server has ended");
        }
        let visited = namespaces.run(1, &format!("visit {client} {listen}")).output().unwrap();
        assert!(visited.status.success(), "{}", String::from_utf8_lossy(&visited.stdout));
        assert!(serving.wait().unwrap().success());
    }
}

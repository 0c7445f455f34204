//! The packets of the services as Wireshark shows them: op-codes, queue pairs, Q_Keys and groups, none
//! malformed.

use remora_verbs::{
    Access, CompletionQueue, DatagramQueuePair, Device, EMPTY, Endpoint, MULTICAST_QPN, MemoryRegion,
    QpOptions, QueuePair, ReceiveRequest, SrqOptions, Status, WindowType, XrcInitiator, work,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);

/// A file that is removed when the value is dropped.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn wait(cq: &mut CompletionQueue, count: usize) {
    for _ in 0..count {
        let mut done = [EMPTY; 1];
        assert_eq!(cq.wait(&mut done, LONG), Ok(1));
        assert_eq!(done[0].status, Status::Success, "{done:?}");
    }
}

/// Sends every kind of packet once between queue pairs of one device. Returns the numbers of the datagram
/// queue pair and of the connected queue pairs that received.
fn everything(device: &Device, group: Endpoint) -> [u32; 4] {
    let context = device.open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(64).unwrap();
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::MW_BIND;
    let memory: MemoryRegion = domain.allocate(1 << 14, rights).unwrap();
    let options = QpOptions::default();
    let words = [memory.sge(0, 100)];
    let place = [memory.sge(4096, 4096)];
    let receive = ReceiveRequest { id: 0, sges: &place };

    let uc = || domain.create_unreliable_qp(&cq, &cq, &options).unwrap();
    let (mut one, mut two) = QueuePair::connect_pair(uc(), uc()).unwrap();
    two.post_recv(&receive).unwrap();
    one.post_send(&work::send(1, &words)).unwrap();
    wait(&mut cq, 2);
    one.post_send(&work::write(2, &words, memory.remote(0))).unwrap();
    wait(&mut cq, 1);

    let xrc = context.open_xrc_domain(0).unwrap();
    let mut srq = domain.create_xrc_srq(&xrc, &cq, &SrqOptions::default()).unwrap();
    let target = xrc.create_target(&options).unwrap();
    let target_number = target.number();
    let initiator = domain.create_xrc_initiator(&cq, &options).unwrap();
    let (mut initiator, _target) = XrcInitiator::connect_pair(initiator, target).unwrap();
    srq.post_recv(&receive).unwrap();
    initiator.post_send(&work::send_imm(3, &words, 5), srq.number()).unwrap();
    wait(&mut cq, 2);

    let ud = || domain.create_datagram_qp(&cq, &cq, &options).unwrap();
    let mut sender = ud();
    let mut receiver = ud();
    let (there, _) = DatagramQueuePair::resolve_pair(&sender, &receiver).unwrap();
    receiver.post_recv(&receive).unwrap();
    sender.post_send_to(&work::send(4, &words), &there).unwrap();
    wait(&mut cq, 2);
    receiver.attach(group).unwrap();
    receiver.post_recv(&receive).unwrap();
    let all = domain.create_address_handle(0, group).unwrap().group(receiver.qkey());
    sender.post_send_to(&work::send_imm(5, &words, 6), &all).unwrap();
    wait(&mut cq, 2);

    let rc = || domain.create_qp(&cq, &cq, &options).unwrap();
    let (mut user, mut owner) = QueuePair::connect_pair(rc(), rc()).unwrap();
    let mut window = domain.allocate_window(WindowType::Type2B).unwrap();
    owner.post_send(&window.bind(6, &memory, 0, 4096, Access::REMOTE_WRITE)).unwrap();
    wait(&mut cq, 1);
    owner.post_recv(&receive).unwrap();
    user.post_send(&work::send_inv(7, &words, window.rkey())).unwrap();
    wait(&mut cq, 2);
    [two.number(), target_number, receiver.number(), owner.number()]
}

const FIELDS: [&str; 5] =
    ["infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.deth.q_key", "ip.dst", "_ws.malformed"];

fn tshark(file: &Path) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(file).args(["--disable-protocol", "rpcordma", "-T", "fields"]);
    // tshark recognises RoCE v2 by UDP port 4791, and the tests use other ports.
    command.args(["-d", "udp.port==1-65535,infiniband"]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output =
        command.output().unwrap_or_else(|error| panic!("this test needs tshark (`make setup`): {error}"));
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

#[test]
fn tshark_reads_the_frames_of_every_service() {
    let name = format!("remora-{}-services.pcapng", std::process::id());
    let file = Temporary(std::env::temp_dir().join(name));
    let device = Device::udp("127.0.0.1:0").unwrap().capture(&file.0);
    let group = Endpoint { address: std::net::Ipv4Addr::new(239, 255, 71, 8).into(), udp_port: 47913 };
    let [uc, target, ud, rc] = everything(&device, group);
    let seen = tshark(&file.0);
    assert!(seen.iter().all(|frame| frame.get(4).is_none_or(String::is_empty)), "{seen:?}");
    // Each frame is captured twice: when it is sent and when it arrives.
    let qkey = u64::from(QpOptions::default().qkey);
    for (opcode, dest_qp, qkey, address) in [
        (0x24, uc, None, "127.0.0.1"),
        (0x2a, uc, None, "127.0.0.1"),
        (0xa5, target, None, "127.0.0.1"),
        (0x64, ud, Some(qkey), "127.0.0.1"),
        (0x65, MULTICAST_QPN, Some(qkey), "239.255.71.8"),
        (0x17, rc, None, "127.0.0.1"),
    ] {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        };
        let is_it = |frame: &&Vec<String>| {
            number(&frame[0]) == Some(opcode)
                && number(&frame[1]) == Some(u64::from(dest_qp))
                && number(&frame[2]) == qkey
                && frame[3] == address
        };
        assert_eq!(seen.iter().filter(is_it).count(), 2, "{opcode:#x} to {dest_qp:#x}: {seen:?}");
    }
}

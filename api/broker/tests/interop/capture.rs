//! The frames of the guest's tap: dumpcap records them, tshark must decode them, and each ICRC must be
//! right.

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};

use remora_host::wait_readable;
use remora_netns::Namespace;
use remora_wire::frame::{Start, dissect};
use remora_wire::icrc::Flow;

use crate::LIMIT;
use crate::network::{GUEST, TAP};

/// A capture of all frames of the tap.
pub(crate) struct Capture {
    dumpcap: Child,
    stderr: BufReader<ChildStderr>,
    file: PathBuf,
}

impl Capture {
    /// Begins a capture, which records when this returns.
    #[track_caller]
    pub(crate) fn begin(wire: &Namespace, name: &str) -> Capture {
        let file = std::env::temp_dir().join(format!("{}-{name}.pcap", wire.name()));
        let mut command = wire.command("dumpcap");
        command.args(["-q", "-P", "-B", "64", "-i", TAP, "-f", "udp port 4791", "-w"]).arg(&file);
        let mut dumpcap = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(dumpcap.stderr.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("File:") {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "dumpcap ended (`make setup`)");
        }
        Capture { dumpcap, stderr, file }
    }

    /// Ends the capture. Returns the numbers of frames sent by Remora and by the guest, after checking that
    /// tshark takes each for RoCE v2 and that its ICRC is right. With `keep`, the file stays for inspection.
    #[track_caller]
    pub(crate) fn check(mut self, keep: bool) -> [usize; 2] {
        let pid = rustix::process::Pid::from_child(&self.dumpcap);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert!(wait_readable(self.stderr.get_ref().as_fd(), Some(LIMIT)).unwrap(), "dumpcap does not end");
        self.dumpcap.wait().unwrap();
        let recorded = std::fs::read(&self.file).unwrap();
        let frames = read(&recorded);
        let mut sent = [0; 2];
        for (number, bytes) in frames.iter().enumerate() {
            let number = number + 1;
            let frame =
                dissect(Start::Ethernet, bytes).unwrap_or_else(|error| panic!("frame {number}: {error}"));
            let (network, udp) = frame.network.expect("an IP packet");
            let covered =
                &bytes[bytes.len() - frame.packet.buffer_len()..bytes.len() - remora_wire::icrc::LEN];
            let right = Flow::of(&network, &udp).accepts(network.ip_id(), covered, frame.icrc);
            let source = std::net::IpAddr::from(network.addresses().0).to_canonical();
            assert!(right, "frame {number}, from {source}: its ICRC is wrong");
            sent[usize::from(GUEST.iter().any(|guest| guest.parse() == Ok(source)))] += 1;
        }
        let broken = tshark(&self.file, "_ws.malformed || !infiniband");
        assert!(broken.is_empty(), "tshark does not understand {broken}");
        if keep {
            println!("the frames of this stage are in {}", self.file.display());
        } else {
            std::fs::remove_file(&self.file).unwrap();
        }
        sent
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.dumpcap.kill();
        let _ = self.dumpcap.wait();
    }
}

/// Returns tshark's lines for the frames that pass its filter. tshark is kept from guessing that payloads
/// belong to other protocols.
#[track_caller]
fn tshark(file: &PathBuf, filter: &str) -> String {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(file).args(["--disable-protocol", "rpcordma", "-Y", filter]);
    let output = command.output().unwrap_or_else(|error| panic!("tshark (`make setup`): {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the frames of a pcap file: a header of 24 bytes, then 16 bytes before each frame.
fn read(file: &[u8]) -> Vec<&[u8]> {
    let word = |bytes: &[u8], offset: usize| {
        u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap()) as usize
    };
    let mut frames = Vec::new();
    let mut rest = &file[24..];
    while !rest.is_empty() {
        let captured = word(rest, 8);
        let len = word(rest, 12);
        assert_eq!(captured, len, "no frame was cut when it was recorded");
        frames.push(&rest[16..16 + len]);
        rest = &rest[16 + len..];
    }
    frames
}

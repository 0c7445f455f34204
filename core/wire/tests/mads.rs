//! Tests that tshark decodes the messages of connection managers to the values that were written. tshark
//! knows neither MRA nor SIDR.
#![cfg(not(miri))]

#[allow(dead_code, reason = "the other tests also read")]
mod pcap;

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use remora_wire::frame::{Endpoint, Route, Start};
use remora_wire::icrc::{self, Flow};
use remora_wire::mad::{
    self, Answered, CmMessage, PortSpace, RejectReason, ServiceId, drep, dreq, ip_cm, path, rej, rep, req,
    rtu,
};
use remora_wire::{Address, Extensions, Opcode, Packet, Psn, Qpn, ROCE_PORT, bth, deth};

/// A message, and the fields and numbers that tshark must show for it.
struct Case {
    message: CmMessage,
    shown: Vec<(&'static str, u64)>,
}

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Returns a datagram with the message from queue pair 1 to queue pair 1.
fn frame(message: &CmMessage) -> Vec<u8> {
    let mut payload = [0; mad::LEN];
    message.emit(0x0102_0304_0506_0708, &mut payload);
    let end = |address: Ipv4Addr, udp_port| Endpoint { address: address.into(), udp_port };
    let route = Route::new(end(A, 0xc000), end(B, ROCE_PORT));
    let ext =
        Extensions { deth: Some(deth::Repr { qkey: mad::QKEY, src_qp: Qpn::GSI }), ..Extensions::default() };
    let packet = Packet::new(bth::Repr::new(Opcode::UD_SEND_ONLY, Qpn::GSI, Psn::new(1)), ext, &payload);
    let mut frame = vec![0; Start::Ethernet.overhead(true) + packet.buffer_len()];
    let bth_at = route.emit(Start::Ethernet, 0, packet.buffer_len() as u16, &mut frame);
    let icrc_at = bth_at + packet.emit(&mut frame[bth_at..]);
    let sealed = Flow::new(route.source, route.destination).seal(0, &frame[bth_at..icrc_at]);
    icrc::write(&mut frame, sealed);
    frame
}

/// Returns the fields of each case as tshark decodes them.
fn tshark(cases: &[Case]) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mads.pcap");
    let frames: Vec<_> = cases.iter().map(|case| frame(&case.message)).collect();
    std::fs::write(&path, pcap::write(&frames)).unwrap();
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path).args(["-T", "fields"]);
    for (field, _) in cases.iter().flat_map(|case| &case.shown) {
        command.args(["-e", field]);
    }
    let output =
        command.output().unwrap_or_else(|error| panic!("tshark cannot be run ({error}): `make setup`"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// Parses a decimal or hexadecimal number or an address printed by tshark.
fn number(shown: &str) -> Option<u64> {
    if let Some(digits) = shown.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    let address = shown.parse::<Ipv4Addr>().map(|address| u64::from(address.to_bits()));
    shown.parse().ok().or(address.ok())
}

fn req() -> Case {
    let addresses = ip_cm::Addresses::V4 { source: A, destination: B };
    let mut private_data = [0xaa; req::PRIVATE_LEN];
    ip_cm::Repr { port: 0xb45f, addresses }.emit(&mut private_data);
    let path = path::Repr {
        local_lid: 0x1112,
        remote_lid: 0x1314,
        local_gid: A.into(),
        remote_gid: B.into(),
        flow_label: 0xabcde,
        rate: 0x2a,
        traffic_class: 0x15,
        hop_limit: 0x16,
        sl: 9,
        subnet_local: true,
        ack_timeout: 21,
    };
    let message = CmMessage::Req(req::Repr {
        local_comm_id: 0x0102_0304,
        service_id: ServiceId::rdma_ip(PortSpace::Tcp, 7174),
        local_ca_guid: 0x1122_3344_5566_7788,
        local_qkey: 0x0a0b_0c0d,
        local_qpn: Qpn::new(0x12_3456),
        responder_resources: 0x21,
        local_eecn: 0x65_4321,
        initiator_depth: 0x43,
        remote_eecn: 0x77_8899,
        remote_response_timeout: 19,
        transport: 2,
        flow_control: true,
        starting_psn: Psn::new(0xab_cdef),
        local_response_timeout: 22,
        retry_count: 5,
        pkey: 0x8001,
        path_mtu: 4,
        rdc_exists: true,
        rnr_retry_count: 3,
        max_cm_retries: 11,
        srq: true,
        extended_transport: 5,
        primary: path,
        alternate: path::Repr {
            local_lid: 0x2122,
            sl: 6,
            ack_timeout: 10,
            local_gid: Address::default(),
            ..path
        },
        private_data,
    });
    Case { message, shown: req_shown() }
}

fn req_shown() -> Vec<(&'static str, u64)> {
    vec![
        ("infiniband.mad.transactionid", 0x0102_0304_0506_0708),
        ("infiniband.mad.attributeid", 0x10),
        ("infiniband.cm.req", 0x0102_0304),
        ("infiniband.cm.req.serviceid", 0x0106_1c06),
        ("infiniband.cm.req.serviceid.dport", 7174),
        ("infiniband.cm.req.localcaguid", 0x1122_3344_5566_7788),
        ("infiniband.cm.req.localqkey", 0x0a0b_0c0d),
        ("infiniband.cm.req.localqpn", 0x12_3456),
        ("infiniband.cm.req.responderres", 0x21),
        ("infiniband.cm.req.localeecn", 0x65_4321),
        ("infiniband.cm.req.initdepth", 0x43),
        ("infiniband.cm.req.remoteeecn", 0x77_8899),
        ("infiniband.cm.req.remoteresptout", 19),
        ("infiniband.cm.req.transpsvctype", 2),
        ("infiniband.cm.req.e2eflowctrl", 1),
        ("infiniband.cm.req.startpsn", 0xab_cdef),
        ("infiniband.cm.req.localresptout", 22),
        ("infiniband.cm.req.retrcount", 5),
        ("infiniband.cm.req.pkey", 0x8001),
        ("infiniband.cm.req.pppmtu", 4),
        ("infiniband.cm.req.rdcexist", 1),
        ("infiniband.cm.req.rnrretrcount", 3),
        ("infiniband.cm.req.maxcmretr", 11),
        ("infiniband.cm.req.srq", 1),
        ("infiniband.cm.req.ext_transport", 5),
        ("infiniband.cm.req.prim_locallid", 0x1112),
        ("infiniband.cm.req.prim_remotelid", 0x1314),
        ("infiniband.cm.req.prim_localgid_ipv4", u64::from(A.to_bits())),
        ("infiniband.cm.req.prim_remotegid_ipv4", u64::from(B.to_bits())),
        ("infiniband.cm.req.prim_tfcclass", 0x15),
        ("infiniband.cm.req.prim_hoplim", 0x16),
        ("infiniband.cm.req.prim_sl", 9),
        ("infiniband.cm.req.prim_subnetlocal", 1),
        ("infiniband.cm.req.prim_localacktout", 21),
        ("infiniband.cm.req.alt_locallid", 0x2122),
        ("infiniband.cm.req.alt_sl", 6),
        ("infiniband.cm.req.alt_localacktout", 10),
        ("infiniband.cm.req.ip_cm.majv", 0),
        ("infiniband.cm.req.ip_cm.ipv", 4),
        ("infiniband.cm.req.ip_cm.sport", 0xb45f),
        ("infiniband.cm.req.ip_cm.sip4", u64::from(A.to_bits())),
        ("infiniband.cm.req.ip_cm.dip4", u64::from(B.to_bits())),
    ]
}

fn rep() -> Case {
    let message = CmMessage::Rep(rep::Repr {
        local_comm_id: 0x0102_0304,
        remote_comm_id: 0x0506_0708,
        local_qkey: 0x0a0b_0c0d,
        local_qpn: Qpn::new(0x12_3456),
        local_eecn: 0x65_4321,
        starting_psn: Psn::new(0xab_cdef),
        responder_resources: 0x21,
        initiator_depth: 0x43,
        target_ack_delay: 22,
        failover: 2,
        flow_control: true,
        rnr_retry_count: 5,
        srq: true,
        local_ca_guid: 0x1122_3344_5566_7788,
        private_data: [0xbb; rep::PRIVATE_LEN],
    });
    let shown = vec![
        ("infiniband.cm.rep", 0x0102_0304),
        ("infiniband.cm.rep.remotecommid", 0x0506_0708),
        ("infiniband.cm.rep.localqkey", 0x0a0b_0c0d),
        ("infiniband.cm.rep.localqpn", 0x12_3456),
        ("infiniband.cm.rep.localeecn", 0x65_4321),
        ("infiniband.cm.rep.startpsn", 0xab_cdef),
        ("infiniband.cm.rep.respres", 0x21),
        ("infiniband.cm.rep.initdepth", 0x43),
        ("infiniband.cm.rep.tgtackdelay", 22),
        ("infiniband.cm.rep.failoveracc", 2),
        ("infiniband.cm.rep.e2eflowctrl", 1),
        ("infiniband.cm.rep.rnrretrcount", 5),
        ("infiniband.cm.rep.srq", 1),
        ("infiniband.cm.rep.localcaguid", 0x1122_3344_5566_7788),
    ];
    Case { message, shown }
}

fn others() -> [Case; 4] {
    let local_comm_id = 0x0102_0304;
    let remote_comm_id = 0x0506_0708;
    let rej =
        rej::Repr::new(local_comm_id, remote_comm_id, Answered::Rep, RejectReason(0x1234), &[7; 70], &[8]);
    let rtu = rtu::Repr { local_comm_id, remote_comm_id, private_data: [1; 224] };
    let dreq =
        dreq::Repr { local_comm_id, remote_comm_id, remote_qpn: Qpn::new(0x12_3456), private_data: [2; 220] };
    let drep = drep::Repr { local_comm_id, remote_comm_id, private_data: [3; 224] };
    [
        Case {
            message: CmMessage::Rej(rej),
            shown: vec![
                ("infiniband.cm.rej.localcommid", 0x0102_0304),
                ("infiniband.cm.rej.remotecommid", 0x0506_0708),
                ("infiniband.cm.rej.msgrej", 1),
                ("infiniband.cm.rej.rejinfolen", 70),
                ("infiniband.cm.rej.reason", 0x1234),
            ],
        },
        Case {
            message: CmMessage::Rtu(rtu),
            shown: vec![
                ("infiniband.cm.rtu.localcommid", 0x0102_0304),
                ("infiniband.cm.rtu.remotecommid", 0x0506_0708),
            ],
        },
        Case {
            message: CmMessage::Dreq(dreq),
            shown: vec![
                ("infiniband.cm.dreq.localcommid", 0x0102_0304),
                ("infiniband.cm.dreq.remotecommid", 0x0506_0708),
                ("infiniband.cm.req.remoteqpneecn", 0x12_3456),
            ],
        },
        Case {
            message: CmMessage::Drep(drep),
            shown: vec![
                ("infiniband.cm.drsp.localcommid", 0x0102_0304),
                ("infiniband.cm.drsp.remotecommid", 0x0506_0708),
            ],
        },
    ]
}

/// Flow labels are excluded, because tshark 4.0 shows only twelve of their 20 bits.
#[test]
fn tshark_reads_every_field_as_we_meant_it() {
    let cases: Vec<Case> = [req(), rep()].into_iter().chain(others()).collect();
    let rows = tshark(&cases);
    assert_eq!(rows.len(), cases.len(), "a row for each message");
    let mut column = 0;
    for (case, row) in cases.iter().zip(&rows) {
        for (field, expected) in &case.shown {
            assert_eq!(number(&row[column]), Some(*expected), "{field}: {:?}", row[column]);
            column += 1;
        }
    }
}

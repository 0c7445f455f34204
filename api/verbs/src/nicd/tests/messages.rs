//! The bytes of the messages between programs and daemon.

use remora_nic::AsyncEvent;

use super::super::daemon_client::{event_of, event_word};
use super::*;

/// Returns one request of each kind.
pub(super) fn requests() -> Vec<Request> {
    let mut requests = requests_of_programs();
    requests.extend(commands().into_iter().map(Request::Execute));
    requests
}

fn requests_of_programs() -> Vec<Request> {
    let qp = Qpn::new(17);
    let peer = LinkPeer { id: EngineId(9), endpoint: ENDPOINT };
    let patience = Duration::from_millis(1);
    vec![
        Request::Attach { version: VERSION, name: "tenant".to_owned(), kept: true },
        DOMAIN,
        free_domain(1),
        register(1, &[range(4096)]),
        register(1, &[range(4096); MAX_RANGES]),
        revoke(3),
        Request::Table(TableCommand::RegisterNull(Pd::of_number(1))),
        Request::Table(TableCommand::Deregister(Key::new(3))),
        Request::Table(TableCommand::Retire(Key::new(3))),
        Request::Table(TableCommand::FreeMemory(1 << 31)),
        Request::Table(TableCommand::AllocWindow { pd: Pd::of_number(1), second: true }),
        Request::Table(TableCommand::QueryWindow(Key::new(3))),
        Request::Table(TableCommand::FreeWindow(Key::new(3))),
        Request::NameRegion { key: 3, name: "table".to_owned() },
        Request::HandRing,
        Request::HandKernel { kernel: 1, lanes: 2 },
        Request::HandModule { lanes: 2, memory: 1 << 40 },
        Request::AssignBell(BellOwner::QueuePair(qp)),
        Request::CreateChannel,
        Request::DestroyChannel(2),
        Request::SetChannel { cq: 0, tag: 7, channel: 2 },
        Request::ReuseLink(EngineId(9)),
        Request::LoopBack,
        Request::OfferLink,
        Request::WithdrawLink(3),
        Request::ReleasePeer(Peer(1)),
        Request::Long(LongRequest::Reach { address: 0, endpoint: ENDPOINT, patience }),
        Request::Long(LongRequest::TakeLink { from: peer, name: "no link".to_owned(), patience }),
        Request::Long(LongRequest::GiveLink { to: peer, offer: 0, patience }),
        Request::JoinGroup { qp, group: ENDPOINT },
        Request::LeaveGroup { qp, group: ENDPOINT },
        Request::Note { object: ObjectName::Qp(qp), note: vec![7; MAX_NOTE] },
        Request::Kept(0),
        Request::Identify,
        Request::RegisterRma(RegisterRma {
            region: 9,
            base: 0,
            len: 64,
            rights: Rights::READ,
            key: key_of_rma(),
        }),
        Request::DeregisterRma(1),
        Request::RekeyRma { region: 1, key: key_of_rma() },
        Request::RmaKey(1),
        Request::List { version: VERSION },
        Request::End { version: VERSION, uid: 1001, name: "tenant".to_owned() },
    ]
}

/// Returns commands of the NIC of many kinds.
fn commands() -> Vec<Command> {
    let qp = Qpn::new(17);
    let address = AddressVector::new(Peer(3), Route::new(ENDPOINT, ENDPOINT));
    let toward = Modify { address: Some(address), state: Some(State::Rtr), ..Modify::default() };
    vec![
        create_cq(0),
        Command::DestroyCq { cq: 0 },
        Command::NotifyCq { cq: 0, notify: Notify::Solicited },
        create_qp(1, 0, 0, PARTS),
        Command::DestroyQp(qp),
        Command::QueryQp(qp),
        fail(17),
        Command::ModifyQp { qp, change: Box::new(toward) },
        create_loopback(1, 0, PARTS),
        Command::Enable { qp, count: 1 << 40 },
        Command::CreateSrq(SrqInit { pd: Pd::of_number(1), ring: PARTS[0], max_sge: 1, xrc: None }),
        Command::AllocXrcDomain,
        Command::CreateXrcTarget { domain: 0 },
        Command::CreateAddressHandle { pd: Pd::of_number(1), address },
        Command::DeployKernel(kernel(1, &[3, 4])),
        Command::RemoveKernel { kernel: 2 },
        portal(1, 0, 16, true, PARTS[0]),
        Command::DestroyPortal { portal: 0 },
    ]
}

fn replies() -> Vec<Reply> {
    let manner = "through its daemon";
    let source = Endpoint { udp_port: 50_000, ..ENDPOINT };
    let port = PortFacts { kind: PortKind::Udp, endpoint: ENDPOINT, source, path_mtu: 4096, manner };
    let region = KeptObject::Region {
        key: Key::new(9),
        pd: Pd::of_number(1),
        first: range(4096),
        name: "table".to_owned(),
    };
    let object =
        KeptObject::Object { object: ObjectName::Qp(Qpn::new(17)), bell: 1, note: vec![7; MAX_NOTE] };
    vec![
        Reply::Refused("no".to_owned()),
        Reply::Done,
        Reply::Attached { port, engine: EngineId(1 << 100), irn_reach: 64, places: 64 },
        Reply::Number(4),
        Reply::Domain(Pd::of_number(1)),
        Reply::Key(Key::new(9)),
        Reply::Peer(Peer(3)),
        Reply::Link { name: "link".to_owned(), offer: 2 },
        DONE,
        Reply::RefusedByNic(CommandError { kind: fail(3).kind(), fault: NicError::Unknown.into() }),
        Reply::AtLimit("too many".to_owned()),
        Reply::RefusedByTable(remora_memory::Error::Os(12)),
        Reply::Kept(Box::new(KeptObject::Domain(Pd::of_number(1)))),
        Reply::Kept(Box::new(region)),
        Reply::Kept(Box::new(object)),
        Reply::Nothing,
        Reply::Identity { pid: 77, incarnation: 0x1234_5678 },
        Reply::RmaKey(key_of_rma()),
        Reply::Tenant(TenantFacts {
            uid: 1001,
            name: "store".to_owned(),
            attached: true,
            regions: 1,
            queues: 2,
            pairs: 3,
            bytes: 1 << 40,
            rma_slots: 4,
            rma_regions: 5,
        }),
    ]
}

#[test]
fn messages_come_back_as_they_were_and_no_part_of_one_is_a_message() {
    for request in requests() {
        let bytes = request.emit();
        assert!(bytes.len() <= MAX_PACKET);
        assert_eq!(Request::parse(&bytes), Some(request));
        assert!((0..bytes.len()).all(|len| Request::parse(&bytes[..len]).is_none()));
        assert_eq!(Request::parse(&[&bytes[..], &[0]].concat()), None);
    }
    for reply in replies() {
        let bytes = reply.emit();
        assert!(bytes.len() <= MAX_PACKET);
        assert_eq!(Reply::parse(&bytes), Some(reply));
        assert!((0..bytes.len()).all(|len| Reply::parse(&bytes[..len]).is_none()));
    }
}

/// The first bytes of the first message are those of each version, so that a program of another version is
/// told so.
#[test]
fn the_first_bytes_of_an_attachment_and_of_a_refusal_are_those_of_all_versions() {
    let attach = Request::Attach { version: 0x0506, name: "a".to_owned(), kept: true };
    assert_eq!(attach.emit(), b"\x01RemoraNd\x06\x05\x01\0a\x01");
    assert_eq!(Request::List { version: 7 }.emit(), b"\x02RemoraNd\x07\0");
    assert_eq!(Reply::Refused("no".to_owned()).emit(), b"\x01\x02\0no");
}

#[test]
fn events_come_back_from_their_words() {
    let qp = Qpn::new(0x00ff_ffff);
    for event in [AsyncEvent::QpFatal(qp), AsyncEvent::CqOverrun(u32::MAX), AsyncEvent::DeviceFatal] {
        assert_eq!(event_of(event_word(event)), Some(event));
    }
    assert_eq!(event_of(u64::MAX), None);
}

//! Mistakes of programs over a real port. Each gets a status, or one line that says what to do.

use crate::bed::{ALL, Bed, LEN, MS, options, short_timers};
use remora_cipher::Aes;
use remora_verbs::rma::{RegionKey, Rights, RmaError, RmaOptions, Settings, Status};
use remora_verbs::{Access, CreateError, Device};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const UDP: &str = "127.0.0.1:0";

fn bed() -> Bed {
    let patient = Settings { timeout: 2_000 * MS, dispatch_timeout: 1_000 * MS, ..short_timers() };
    Bed::new(UDP, patient, [(); 2].map(|()| Box::new(Aes::new(64)) as _))
}

fn words(error: CreateError) -> String {
    error.to_string()
}

#[test]
fn slots_portals_regions_and_engines_are_as_many_as_were_asked_for() {
    let context = Device::udp(UDP).unwrap().open().unwrap();
    let settings = Settings { slots: 8, ..short_timers() };
    let rma = context.open_rma(&RmaOptions { regions: 2, ..options(settings) }).unwrap();
    let domain = context.alloc_pd().unwrap();
    assert_eq!(rma.create_portal(&domain, 0).unwrap_err(), CreateError::TooFew("slots", 0, 1));
    let portal = rma.create_portal(&domain, 6).unwrap();
    let full = rma.create_portal(&domain, 3).unwrap_err();
    assert!(matches!(full, CreateError::Nic(_)), "{full:?}");
    assert!(!words(full).contains('\n'));
    drop(portal);
    let _all = rma.create_portal(&domain, 8).unwrap();
    let memory = || domain.allocate(64, Access::LOCAL_WRITE).unwrap();
    let two = [(); 2].map(|()| rma.expose(memory(), Rights::READ, None).unwrap());
    let full = rma.expose(memory(), Rights::READ, None).unwrap_err();
    assert_eq!(words(full), "regions of 1RMA of 3; at most 2 is possible");
    drop(two);
    rma.expose(memory(), Rights::READ, None).unwrap();
    let none = RmaOptions { engine: 1, ..RmaOptions::default() };
    assert_eq!(words(context.open_rma(&none).unwrap_err()), "engine number of 2; at most 1 is possible");
    assert_eq!(words(rma.on_engine(1).unwrap_err()), "engine number of 2; at most 1 is possible");
    assert_eq!(RegionKey::new([0; 16]), None);
}

#[test]
fn transfers_of_no_bytes_are_refused_and_those_beyond_a_command_are_cut() {
    let mut bed = bed();
    let grant = bed.grant();
    for timeout in [Duration::ZERO, PATIENCE] {
        let refused = bed.portal.write(&bed.local, 0, &grant, 0, 0, timeout).unwrap_err();
        assert_eq!(refused.to_string(), "a transfer of no bytes");
    }
    let bytes: Vec<u8> = (0..4097).map(|index| (index * 5) as u8).collect();
    bed.local.memory().write(0, &bytes).unwrap();
    bed.portal.write(&bed.local, 0, &grant, 9, 4097, PATIENCE).unwrap();
    let mut back = vec![0; 4097];
    bed.served.memory().read(9, &mut back).unwrap();
    assert!(back == bytes);
    bed.wait_until_idle();
}

/// Regression: memory and regions of another device were taken for the own ones with the same numbers.
#[test]
fn objects_of_another_device_are_refused() {
    let mut bed = bed();
    let grant = bed.grant();
    let [server, client] = &bed.contexts;
    let foreign = client.alloc_pd().unwrap().allocate(64, Access::LOCAL_WRITE).unwrap();
    assert_eq!(bed.serving.expose(foreign, ALL, None).unwrap_err(), CreateError::OtherContext);
    let domain = server.alloc_pd().unwrap();
    assert_eq!(bed.client.create_portal(&domain, 1).unwrap_err(), CreateError::OtherContext);
    // The server's region happens to have the same RegionId as the client's own.
    assert_eq!(bed.served.id(), bed.local.id());
    let refused = bed.portal.read(&bed.served, 0, &grant, 0, 64, PATIENCE);
    assert_eq!(refused, Err(RmaError::OtherContext));
    bed.portal.read(&bed.local, 0, &grant, 0, 64, PATIENCE).unwrap();
    bed.wait_until_idle();
}

#[test]
fn regions_that_are_gone_end_what_names_them() {
    let mut bed = bed();
    let grant = bed.grant();
    let domain = bed.contexts[0].alloc_pd().unwrap();
    let memory = domain.allocate(LEN, Access::LOCAL_WRITE).unwrap();
    let other = bed.serving.expose(memory, ALL, None).unwrap();
    drop(std::mem::replace(&mut bed.served, other));
    let gone = bed.portal.read(&bed.local, 0, &grant, 0, 64, PATIENCE);
    assert_eq!(gone, Err(RmaError::Failed(Status::RemoteAuthenticationFailure)));
    let again = bed.portal.write(&bed.local, 0, &grant, 0, 64, PATIENCE);
    assert_eq!(again, Err(RmaError::Failed(Status::RemoteAuthenticationFailure)));
}

/// A device stays open until its last object is dropped: a portal alone keeps it open, and so does a region.
#[test]
fn a_device_is_closed_by_its_last_object_alone() {
    let bed = bed();
    let grant = bed.grant();
    let Bed { served, local, mut portal, serving, client, server_cq, contexts, .. } = bed;
    drop((serving, client, server_cq, contexts));
    portal.read(&local, 0, &grant, 0, 64, PATIENCE).unwrap();
    drop(served);
    let gone = portal.read(&local, 0, &grant, 0, 64, Duration::ZERO);
    assert_eq!(gone, Err(RmaError::Failed(Status::Timeout)), "a read of a closed server must time out");
}

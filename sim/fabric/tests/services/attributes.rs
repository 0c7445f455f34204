//! Attributes of queue pairs by service, and the attributes of path migration.

use remora_fabric::{Config, QueuePair, Settings, World};
use remora_nic::{AddressVector, Command, Modify, ModifyFault, PathMigration, QueuePairFacts, Service};
use remora_transport::state::{Attributes, ModifyError, State};

const SERVICES: [Service; 5] =
    [Service::Rc, Service::Uc, Service::Ud, Service::XrcInitiator, Service::XrcTarget];

fn make(world: &mut World, service: Service) -> QueuePair {
    let cq = world.create_cq(0, 16);
    if service == Service::XrcTarget {
        let domain = world.ask::<u32>(0, Command::AllocXrcDomain).unwrap();
        return world.create_xrc_target(0, domain).unwrap();
    }
    world.create_qp_of(service, cq, cq, None, &Settings::default()).unwrap()
}

#[test]
fn each_service_goes_up_with_its_own_attributes_and_no_others() {
    for service in SERVICES {
        let mut world = World::new(&Config::default());
        let qp = make(&mut world, service);
        let settings = Settings::default();
        let steps = world.way_to_rts(qp, qp, [1, 2], &settings);
        // The attributes of another service are incomplete, or too many.
        for other in SERVICES.iter().filter(|other| **other != service) {
            let address = AddressVector::new(world.peer(1), world.route(0, 1));
            let foreign = remora_fabric::changes(*other, address, qp.number, [1, 2], &settings);
            let mut world = World::new(&Config::default());
            let qp = make(&mut world, service);
            let failed = foreign.iter().any(|change| world.modify(qp, change).is_err());
            assert!(failed, "{service:?} came up with the attributes of {other:?}");
        }
        for (step, state) in steps.iter().zip([State::Init, State::Rtr, State::Rts]) {
            world.modify(qp, step).unwrap();
            assert_eq!(world.state(qp), Some(state), "{service:?}");
        }
        let attributes = world.ask::<QueuePairFacts>(0, Command::QueryQp(qp.number)).unwrap().attributes;
        assert_eq!((attributes.state, attributes.sq_psn), (Some(State::Rts), steps[2].sq_psn));
        assert_eq!(attributes.qkey, (service == Service::Ud).then_some(settings.qkey));
        assert_eq!(attributes.timeout.is_some(), !matches!(service, Service::Uc | Service::Ud));
    }
}

/// A RoCE NIC has no second path. The kernel's verbs reject an alternate path on Ethernet with EINVAL, but
/// accept and return the migration state.
#[test]
fn path_migration_is_taken_and_shown_and_an_alternate_path_refused() {
    for service in [Service::Rc, Service::Uc, Service::XrcInitiator] {
        let mut world = World::new(&Config::default());
        let qp = make(&mut world, service);
        let address = AddressVector::new(world.peer(1), world.route(0, 1));
        let steps = world.way_to_rts(qp, qp, [1, 2], &Settings::default());
        world.modify(qp, &steps[0]).unwrap();
        let alternate = Modify { alternate: Some(address), ..steps[1] };
        assert_eq!(world.modify(qp, &alternate), Err(ModifyFault::Value(Attributes::ALT_PATH)));
        assert_eq!(world.state(qp), Some(State::Init), "nothing was changed");
        let early = Modify { path_migration: Some(PathMigration::Armed), ..steps[1] };
        let excess = ModifyFault::Transition(ModifyError::Excess(Attributes::PATH_MIG_STATE));
        assert_eq!(world.modify(qp, &early), Err(excess));
        world.modify(qp, &steps[1]).unwrap();
        world.modify(qp, &Modify { path_migration: Some(PathMigration::Rearm), ..steps[2] }).unwrap();
        for state in [PathMigration::Armed, PathMigration::Migrated] {
            world.modify(qp, &Modify { path_migration: Some(state), ..Modify::default() }).unwrap();
            let attributes = world.ask::<QueuePairFacts>(0, Command::QueryQp(qp.number)).unwrap().attributes;
            assert_eq!(attributes.path_migration, Some(state));
        }
    }
    let mut world = World::new(&Config::default());
    let qp = make(&mut world, Service::Ud);
    world.bring_up(qp, 0, &Settings::default());
    let armed = Modify { path_migration: Some(PathMigration::Armed), ..Modify::default() };
    assert!(world.modify(qp, &armed).is_err(), "datagrams have no path to migrate");
}

#[test]
fn the_state_that_a_program_believes_in_must_be_the_one_there_is() {
    let mut world = World::new(&Config::default());
    let qp = make(&mut world, Service::Ud);
    world.bring_up(qp, 0, &Settings::default());
    let wrong = Modify { current: Some(State::Sqe), qkey: Some(5), ..Modify::default() };
    assert_eq!(world.modify(qp, &wrong), Err(ModifyFault::Value(Attributes::CUR_STATE)));
    world.modify(qp, &Modify { current: Some(State::Rts), ..wrong }).unwrap();
    assert_eq!(world.ask::<QueuePairFacts>(0, Command::QueryQp(qp.number)).unwrap().attributes.qkey, Some(5));
}

#[test]
fn the_drained_event_can_be_declined() {
    let mut world = World::new(&Config::default());
    let qp = make(&mut world, Service::Ud);
    world.bring_up(qp, 0, &Settings::default());
    let to_sqd = Modify { state: Some(State::Sqd), sqd_event: Some(false), ..Modify::default() };
    world.modify(qp, &to_sqd).unwrap();
    assert_eq!(super::events(&mut world, 0), []);
    world.bring(qp, State::Rts);
    world.modify(qp, &Modify { sqd_event: Some(true), ..to_sqd }).unwrap();
    assert_eq!(super::events(&mut world, 0), [remora_nic::AsyncEvent::SqDrained(qp.number)]);
}

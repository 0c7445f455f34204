//! Stores that begin, replicas that return, and clients that meet them.

use super::*;
use crate::random::Random;

fn new(replica: usize, incarnation: u64) -> Membership {
    Membership::new(replica, 3, incarnation).expect("a replica")
}

/// A store of three replicas, whose incarnations are 10, 11, 12.
fn store() -> [Membership; 3] {
    let mut all = [new(0, 10), new(1, 11), new(2, 12)];
    (1..3).for_each(|other| all[other].asked(0, 10));
    let answers = [all[1].state(), all[2].state()];
    assert_eq!(all[0].take_answers(&answers), Ok(true));
    let first = [all[0].state()];
    (1..3).for_each(|other| assert_eq!(all[other].take_answers(&first), Ok(true)));
    all
}

#[test]
fn a_store_begins_when_all_its_replicas_are_new_and_not_before() {
    let mut first = new(0, 10);
    let mut second = new(1, 11);
    second.asked(0, 10);
    assert_eq!(first.take_answers(&[second.state()]), Ok(false), "one is missing");
    assert_eq!((first.serves(), first.wanted_mark()), (Err(MembershipError::NotBegun), None));
    assert_eq!(
        second.take_answers(&[first.state(), new(2, 12).state()]),
        Ok(false),
        "only replica 0 begins it"
    );
    let all = store();
    let states = all.each_ref().map(Membership::state);
    assert!(states.iter().all(|state| state.store == 10 && state.incarnations[..3] == [10, 11, 12]));
    assert_eq!(new(0, 9).take_answers(&[]), Ok(false));
    assert_eq!(Membership::new(0, 1, 9).expect("one alone").take_answers(&[]), Ok(true));
    for (replica, replicas, incarnation) in [(0, 2, 1), (3, 3, 1), (0, 9, 1), (0, 3, 0), (8, 9, 1)] {
        assert_eq!(Membership::new(replica, replicas, incarnation), None);
    }
}

#[test]
fn who_is_new_where_the_store_lives_is_refused() {
    let all = store();
    for replica in 0..3 {
        let mut again = new(replica, 99);
        // A promise to this store does not help: the incarnation is not among those that began the store.
        again.asked(0, 10);
        let other = all[(replica + 1) % 3].state();
        assert_eq!(again.take_answers(&[other]), Err(MembershipError::Lives(other.replica)));
        assert!(!again.state().is_whole());
    }
}

#[test]
fn a_place_is_taken_by_the_highest_incarnation_and_everybody_hears_of_it() {
    let mut all = store();
    let answers = [all[1].state(), all[2].state()];
    let next = Membership::next_incarnation(0, &answers, 6);
    assert_eq!(next, 17);
    assert_eq!(all[1].replaced(0, next, 10), Ok(()));
    assert_eq!(all[1].replaced(0, next, 10), Ok(()), "its connection may break and come again");
    assert_eq!(all[1].replaced(0, 16, 10), Err(MembershipError::Superseded(0)));
    assert_eq!(all[1].replaced(0, 18, 11), Err(MembershipError::OtherStore));
    assert_eq!(all[1].replaced(1, 18, 10), Err(MembershipError::Superseded(1)), "not its own place");
    assert_eq!(new(1, 11).replaced(0, 17, 10), Err(MembershipError::NotBegun));
    assert_eq!(
        all[1].marked(0, 10, 4000),
        Err(MembershipError::Superseded(0)),
        "the old one gives no more numbers"
    );
    assert_eq!(Membership::repaired(0, next, &[all[1].state()]), None, "one source of three is too few");
    let back = Membership::repaired(0, next, &[all[1].state(), all[2].state()]).expect("a majority");
    assert_eq!((back.state().store, back.state().incarnation()), (10, 17));

    // A client that knew the old incarnation refuses it, in every order in which the states arrive.
    let old = all[0].state();
    let mut view = View::default();
    assert_eq!(view.meet(&old), Ok(()));
    assert!(view.is_current(0, old.incarnation()));
    assert_eq!(view.meet(&all[1].state()), Ok(()));
    assert!(!view.is_current(0, old.incarnation()) && view.is_current(0, 17));
    assert_eq!(view.meet(&old), Err(MembershipError::Superseded(0)));
    assert_eq!(view.meet(&back.state()), Ok(()));
    assert_eq!(view.meet(&new(2, 12).state()), Err(MembershipError::NotBegun));
    let stranger = State { store: 11, ..all[2].state() };
    assert_eq!(view.meet(&stranger), Err(MembershipError::OtherStore));
}

#[test]
fn who_takes_a_place_gives_none_of_the_numbers_that_were_given_there() {
    let mut all = store();
    let mut given = std::collections::BTreeSet::new();
    let mut random = Random::new(5);
    let mut repaired = 0;
    for round in 0..40u64 {
        // Some writers take numbers; a mark is moved when one of the two other replicas knows it.
        for _ in 0..random.below(900) {
            if let Ok(number) = all[0].number() {
                assert!(given.insert(number.get()), "round {round}");
            }
            if let Some(mark) = all[0].wanted_mark() {
                let other = 1 + random.below(2) as usize;
                let own = all[0].state();
                assert_eq!(all[other].marked(0, own.incarnation(), mark), Ok(()));
                all[0].mark(mark);
            }
        }
        let answers = [all[1].state(), all[2].state()];
        let next = Membership::next_incarnation(0, &answers, round as u32);
        (1..3).for_each(|other| all[other].replaced(0, next, 10).expect("the newest"));
        let sources = [all[1].state(), all[2].state()];
        all[0] = Membership::repaired(0, next, &sources).expect("a majority");
        repaired += 1;
        assert_eq!(all[0].number(), Err(MembershipError::NoNumber), "before anybody knows of the new mark");
    }
    assert!(given.len() > 5_000 && repaired == 40, "{}", given.len());
}

/// Replicas start, ask, receive late answers, die and restart, each time with `--new`.
#[test]
fn whoever_dies_while_a_store_begins_all_that_serve_are_of_one_store() {
    let mut begun = 0;
    let mut refused = 0;
    for seed in 0..3_000 {
        let mut random = Random::new(seed);
        let mut fresh = 1;
        let mut all: [Membership; 3] = std::array::from_fn(|replica| {
            fresh += 1;
            new(replica, fresh)
        });
        // Answers to each replica that it has not read yet.
        let mut received: [Vec<State>; 3] = Default::default();
        for _ in 0..60 {
            let one = random.below(3) as usize;
            let other = (one + 1 + random.below(2) as usize) % 3;
            match random.below(8) {
                0 => {
                    fresh += 1;
                    all[one] = new(one, fresh);
                    received[one].clear();
                }
                1..=4 if !all[one].state().is_whole() => {
                    let asker = all[one].state();
                    all[other].asked(one, asker.incarnation());
                    received[one].retain(|state| state.replica != other);
                    received[one].push(all[other].state());
                }
                _ if !all[one].state().is_whole() => {
                    let answers = std::mem::take(&mut received[one]);
                    match all[one].take_answers(&answers) {
                        Ok(whole) => begun += u32::from(whole),
                        Err(_) => {
                            // The refused replica ends, and an operator restarts it.
                            refused += 1;
                            fresh += 1;
                            all[one] = new(one, fresh);
                        }
                    }
                }
                _ => {}
            }
            let mut stores = all.iter().map(|one| one.state().store).filter(|store| *store != 0);
            let first = stores.next().unwrap_or(0);
            assert!(stores.all(|store| store == first), "seed {seed}: {all:?}");
        }
    }
    assert!(begun > 1_000 && refused > 1_000, "{begun} begun, {refused} refused");
}

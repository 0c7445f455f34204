//! The rule that modules do not form cycles. Modules that name each other, even through other modules, can
//! only be read and changed together.
//!
//! Every reference counts, from a child to its parent and from a parent to a child. What a module only
//! re-exports is no reference of its own.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::Fault;
use crate::modules::{Arrow, Id, Modules};
use crate::tree::File;

/// The references of each module to others, and the place of each.
type Arrows = BTreeMap<Id, BTreeMap<Id, String>>;

/// Reports the shortest cycle of each group of modules that depend on each other.
pub fn check(files: &[File]) -> Vec<Fault> {
    let modules = Modules::read(files);
    let arrows = arrows(&modules);
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for &start in arrows.keys() {
        if seen.contains(&start) {
            continue;
        }
        let Some(cycle) = shortest(&arrows, start) else { continue };
        seen.extend(reached(&arrows, start).into_iter().filter(|id| reached(&arrows, *id).contains(&start)));
        faults.push(fault(&modules, &arrows, &cycle));
    }
    faults
}

fn fault(modules: &Modules, arrows: &Arrows, cycle: &[Id]) -> Fault {
    let steps = cycle.iter().zip(cycle.iter().cycle().skip(1));
    let steps = steps.map(|(source, target)| {
        let site = arrows[source].get(target).map_or("", String::as_str);
        format!("\n    {} names {} ({site})", modules.name(*source), modules.name(*target))
    });
    let says = format!("a cycle of modules: move what they share below them{}", steps.collect::<String>());
    Fault::new(modules.file(cycle[0]), 0, says)
}

/// Returns every reference.
fn arrows(modules: &Modules) -> Arrows {
    let mut arrows = Arrows::new();
    for Arrow { source, target, site } in modules.arrows() {
        arrows.entry(source).or_default().insert(target, site);
    }
    arrows
}

/// Returns the shortest path of references from a module back to itself.
fn shortest(arrows: &Arrows, start: Id) -> Option<Vec<Id>> {
    let mut before = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(node) = open.pop_front() {
        for &next in arrows.get(&node).into_iter().flat_map(BTreeMap::keys) {
            if next == start {
                let back = std::iter::successors(Some(node), |id| before.get(id).copied());
                let mut cycle: Vec<Id> = back.collect();
                cycle.reverse();
                return Some(cycle);
            }
            if let Entry::Vacant(entry) = before.entry(next) {
                entry.insert(node);
                open.push_back(next);
            }
        }
    }
    None
}

/// Returns every module that can be reached from this one through references.
fn reached(arrows: &Arrows, start: Id) -> BTreeSet<Id> {
    let mut seen = BTreeSet::new();
    let mut open = vec![start];
    while let Some(node) = open.pop() {
        open.extend(
            arrows.get(&node).into_iter().flat_map(BTreeMap::keys).filter(|next| seen.insert(**next)),
        );
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the cycles of a crate that consists of the given files.
    fn cycles(files: &[(&str, &str)]) -> Vec<Fault> {
        let files: Vec<File> = files.iter().map(|(path, text)| File::sample(path, text)).collect();
        check(&files)
    }

    const LIB: (&str, &str) = ("core/wire/src/lib.rs", "mod a;\nmod b;\npub use a::A;\nstruct Own;");

    #[test]
    fn two_modules_that_name_each_other_are_a_cycle() {
        let a = ("core/wire/src/a.rs", "use crate::b::B;\npub struct A(B);");
        for bad in [
            "pub struct B;\nfn f(a: crate::a::A) {}",
            "pub struct B;\nuse super::{a::A as C};",
            "use crate::a;\npub struct B;\nfn f() { a::A::new() }",
            // Through the parent's re-export, by name and with a glob.
            "pub struct B;\nuse crate::A;",
            "pub struct B;\nuse super::*;\nfn f(a: A) {}",
            "pub use inner::B;\nmod inner { use super::super::A; pub struct B; }",
            "macro_rules! m { () => { $crate::a::A } }\npub struct B;",
        ] {
            let faults = cycles(&[LIB, a, ("core/wire/src/b.rs", bad)]);
            assert_eq!(faults.len(), 1, "{bad}: {faults:?}");
            assert!(faults[0].says.contains(" names wire::a (core/wire/src/b.rs:"), "{}", faults[0]);
        }
    }

    #[test]
    fn parents_and_children_that_name_each_other_are_a_cycle() {
        let c = ("core/wire/src/b/c.rs", "use super::B;\npub struct C(Box<B>);");
        let of = |b| cycles(&[("core/wire/src/lib.rs", "mod b;"), ("core/wire/src/b.rs", b), c]).len();
        assert_eq!(of("mod c;\npub use c::C;\npub struct B(C);"), 1);
        assert_eq!(of("mod c;\npub use c::C;\npub struct B;"), 0, "a re-export is no reference");
    }

    #[test]
    fn parents_children_and_tests_are_no_cycle() {
        let a = ("core/wire/src/a.rs", "use crate::b::B;\nuse super::Own;\npub struct A(B);");
        for good in [
            "use super::Own;\npub struct B;",
            "pub struct B;\n#[cfg(test)] mod tests { use crate::a::A; }",
            "pub struct B;\n// crate::a::A\nconst C: &str = \"crate::a::A\";",
            "pub struct B;\nuse other::A;\nfn a() {}\nfn f(x: X) { x.a(); a::<u8>() }",
            "mod c; pub use c::C;\npub struct B;",
        ] {
            let c = ("core/wire/src/b/c.rs", "use super::B;\npub struct C(B);");
            let faults = cycles(&[LIB, a, ("core/wire/src/b.rs", good), c]);
            assert_eq!(faults, [], "{good}");
        }
    }

    #[test]
    fn a_cycle_goes_through_others_and_through_what_lies_below() {
        let lib = ("stores/store/src/lib.rs", "mod a; mod b; mod c;");
        let (a, b) =
            (("stores/store/src/a.rs", "use crate::b::B;"), ("stores/store/src/b.rs", "use crate::c::C;"));
        let c = ("stores/store/src/c.rs", "mod deep;\npub use deep::C;");
        let deep = ("stores/store/src/c/deep.rs", "use crate::a::A;\npub struct C;");
        let faults = cycles(&[lib, a, b, c, deep]);
        assert!(faults.len() == 1 && faults[0].says.lines().count() == 4, "{faults:?}");
        assert_eq!(cycles(&[lib, a, b, c]), []);
    }

    #[test]
    fn each_knot_is_one_fault() {
        let files = [
            File::sample("core/wire/src/lib.rs", "mod a; mod b; mod c; mod d;"),
            File::sample("core/wire/src/a.rs", "use crate::b::B;"),
            File::sample("core/wire/src/b.rs", "use crate::a::A;"),
            File::sample("core/wire/src/c.rs", "use crate::d::D;"),
            File::sample("core/wire/src/d.rs", "use crate::c::C;"),
        ];
        let faults = check(&files);
        assert!(faults.len() == 2 && faults[1].says.contains("wire::d"), "{faults:?}");
    }
}

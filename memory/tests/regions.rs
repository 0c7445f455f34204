//! Registration, checks and deregistration, one case at a time.
use remora_memory::{Access, AccessError, Biased, Bytes, Config, Error, Key, Pd, Range, Table};
use std::sync::Arc;

const ALL: Access = Access::from_bits(0xf).unwrap();

/// A table and an engine of it.
fn engine(config: Config) -> (Arc<Table>, Biased<()>) {
    let table = Arc::new(Table::new(config).unwrap());
    let engine = Biased::new(&table, ());
    (table, engine)
}

fn check(
    engine: &Biased<()>,
    pd: Pd,
    key: Key,
    va: u64,
    len: usize,
    access: Access,
) -> Result<(), AccessError> {
    let mut pass = engine.enter();
    let (_, mem) = pass.parts();
    mem.probe(pd, key, va, len, access)
}

#[test]
fn a_region_is_readable_and_writable_through_its_key() {
    let (table, engine) = engine(Config::default());
    let pd = table.alloc_pd().unwrap();
    let bytes = Bytes::heap(4096).unwrap();
    let key = table.register(pd, &[Range::at(&bytes, 0x1000)], ALL).unwrap();
    {
        let mut pass = engine.enter();
        let (_, mem) = pass.parts();
        let span = mem.check(pd, key, 0x1010, 5, Access::REMOTE_WRITE).unwrap();
        assert_eq!(span.write(b"hello"), 5);
    }
    let mut seen = [0; 7];
    bytes.read(15, &mut seen).unwrap();
    assert_eq!(&seen, b"\0hello\0");
    table.deregister(key).unwrap();
    assert_eq!(check(&engine, pd, key, 0x1010, 5, Access::REMOTE_WRITE), Err(AccessError::UnknownKey));
    assert_eq!(table.deregister(key), Err(Error::Unknown));
    table.free_pd(pd).unwrap();
}

#[test]
fn deregistering_inside_a_pass_is_refused() {
    let (table, engine) = engine(Config::default());
    let pd = table.alloc_pd().unwrap();
    let key = table.register(pd, &[Range::whole(&Bytes::heap(64).unwrap())], ALL).unwrap();
    let pass = engine.enter();
    assert_eq!(table.deregister(key), Err(Error::InsidePass));
    drop(pass);
    table.deregister(key).unwrap();
}

//! Histories of taking and freeing, across restarts and torn writes.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn range(prefix_length: u8) -> Range {
    Range::parse((Ipv4Addr::new(10, 9, 8, 77), prefix_length)).unwrap()
}

fn open(directory: &Path, prefix_length: u8) -> Addresses {
    Addresses::open(directory, range(prefix_length)).unwrap()
}

fn sandbox(number: usize) -> SandboxId {
    SandboxId(format!("sandbox-{number}"))
}

fn holders(addresses: &Addresses) -> Vec<SandboxId> {
    addresses.table.by_sandbox.keys().cloned().collect()
}

fn last_octet(address: Ipv4Addr) -> u8 {
    address.octets()[3]
}

#[test]
fn a_range_keeps_its_ends_and_the_gateway() {
    assert_eq!(range(24).gateway(), Ipv4Addr::new(10, 9, 8, 1));
    assert_eq!(Ipv4Addr::from(range(24).first()), Ipv4Addr::new(10, 9, 8, 2));
    assert_eq!(Ipv4Addr::from(range(24).last()), Ipv4Addr::new(10, 9, 8, 254));
    assert_eq!(
        (range(30).first(), range(30).last()),
        (u32::from(Ipv4Addr::new(10, 9, 8, 78)), u32::from(Ipv4Addr::new(10, 9, 8, 78)))
    );
    for prefix_length in [0, 7, 31, 32, 33] {
        let parsed = Range::parse((Ipv4Addr::new(10, 0, 0, 0), prefix_length));
        assert!(matches!(parsed, Err(NetworkError::InvalidConfig(_))));
    }
}

#[test]
fn addresses_are_given_out_round_robin_until_none_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let mut addresses = open(directory.path(), 29);
    let given: Vec<u8> = (0..5).map(|n| last_octet(addresses.allocate(&sandbox(n)).unwrap())).collect();
    assert_eq!(given, [74, 75, 76, 77, 78]);
    assert_eq!(addresses.allocate(&sandbox(5)).unwrap_err().to_string(), "no addresses left in 10.9.8.72/29");
    assert_eq!(last_octet(addresses.allocate(&sandbox(2)).unwrap()), 76, "asking again changes nothing");
    addresses.free(&sandbox(0)).unwrap();
    addresses.free(&sandbox(3)).unwrap();
    addresses.free(&sandbox(3)).unwrap();
    assert_eq!(last_octet(addresses.allocate(&sandbox(6)).unwrap()), 74);
    addresses.free(&sandbox(6)).unwrap();
    assert_eq!(last_octet(addresses.allocate(&sandbox(7)).unwrap()), 77, "the one just freed rests");
}

#[test]
fn a_restart_remembers_holders_and_the_turn() {
    let directory = tempfile::tempdir().unwrap();
    {
        let mut addresses = open(directory.path(), 24);
        addresses.allocate(&sandbox(0)).unwrap();
        addresses.allocate(&sandbox(1)).unwrap();
        addresses.free(&sandbox(1)).unwrap();
        let second = Addresses::open(directory.path(), range(24));
        assert!(matches!(second, Err(NetworkError::Busy { .. })));
    }
    for _ in 0..2 {
        let mut addresses = open(directory.path(), 24);
        assert_eq!(holders(&addresses), [sandbox(0)]);
        assert_eq!(last_octet(addresses.allocate(&sandbox(0)).unwrap()), 2);
    }
    let mut addresses = open(directory.path(), 24);
    assert_eq!(last_octet(addresses.allocate(&sandbox(9)).unwrap()), 4, "3 was freed just now");
    addresses.clear().unwrap();
    drop(addresses);
    assert_eq!(holders(&open(directory.path(), 24)), []);
}

#[test]
fn an_unfinished_line_is_dropped_and_nonsense_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("addresses");
    fs::write(&path, "+ 10.9.8.2 a\n+ 10.9.8.3 b").unwrap();
    assert_eq!(holders(&open(directory.path(), 24)), [SandboxId::from("a")]);
    for (text, line) in [("+ 10.9.8.2 a\n+ 10.9.8.2 b\n", 2), ("hello\n", 1), ("+ 10.9.8.2 a\n\0\0\n", 2), ("- x\n", 1)]
    {
        fs::write(&path, text).unwrap();
        match Addresses::open(directory.path(), range(24)) {
            Err(NetworkError::CorruptState { line: found, .. }) => assert_eq!(found, line),
            other => panic!("{text:?}: {:?}", other.map(|addresses| addresses.table)),
        }
    }
    let file_as_directory = Addresses::open(&path, range(24));
    assert!(matches!(file_as_directory, Err(NetworkError::State { .. })));
}

#[test]
fn a_long_journal_is_compacted_on_the_way() {
    let directory = tempfile::tempdir().unwrap();
    let mut addresses = open(directory.path(), 24);
    addresses.allocate(&sandbox(0)).unwrap();
    let padding = "x".repeat(300_000);
    for n in 0..6 {
        let long = SandboxId(format!("{n}-{padding}"));
        addresses.allocate(&long).unwrap();
        addresses.free(&long).unwrap();
    }
    assert!(fs::metadata(directory.path().join("addresses")).unwrap().len() < 1_000_000);
    drop(addresses);
    let mut addresses = open(directory.path(), 24);
    assert_eq!(holders(&addresses), [sandbox(0)]);
    assert_eq!(last_octet(addresses.allocate(&sandbox(1)).unwrap()), 9);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order, with a restart from any prefix of
    /// the journal that ends in a complete allocation, no address has two holders.
    #[test]
    fn no_address_ever_has_two_holders(steps in prop::collection::vec((0usize..12, 0u8..4), 0..60)) {
        let mut table = Table::default();
        let mut journal = String::new();
        for (number, step) in steps {
            let sandbox = sandbox(number);
            let held = table.by_sandbox.get(&sandbox).copied();
            match (step, held) {
                (0, _) => table = Table::parse(table.render().as_bytes()).unwrap(),
                (1, Some(address)) => {
                    journal.push_str(&format!("- {address}\n"));
                    table.release(address);
                }
                (_, None) => if let Some(address) = table.next_free(range(29)) {
                    prop_assert!(!table.by_address.contains_key(&address));
                    prop_assert!((range(29).first()..=range(29).last()).contains(&u32::from(address)));
                    journal.push_str(&format!("+ {address} {sandbox}\n"));
                    table.take(address, sandbox);
                },
                _ => {}
            }
            let distinct: BTreeSet<_> = table.by_sandbox.values().collect();
            prop_assert_eq!(distinct.len(), table.by_sandbox.len());
            prop_assert_eq!(table.by_sandbox.len(), table.by_address.len());
        }
        prop_assert_eq!(Table::parse(journal.as_bytes()).unwrap(), table);
    }
}

//! The search for free numbers.

use super::*;

#[test]
fn api_753_the_range_leaves_out_its_ends() {
    let config = ServiceConfig { cidr: (Ipv4Addr::new(10, 96, 0, 7), 24), endpoint: None };
    assert_eq!(config.api_address(), Ipv4Addr::new(10, 96, 0, 1));
    let range = config.addresses();
    assert_eq!(Ipv4Addr::from(*range.end()), Ipv4Addr::new(10, 96, 0, 254));
    assert_eq!(*ServiceConfig::default().addresses().end(), u32::from(Ipv4Addr::new(10, 111, 255, 254)));
}

#[test]
fn api_753_the_lower_part_is_for_those_who_ask() {
    assert_eq!(static_addresses(&ServiceConfig::default().addresses()), 256);
    assert_eq!(static_ports(&NODE_PORTS), 86);
    assert_eq!(static_band(&(1..=254), 16, 256), 16);
    assert_eq!(static_band(&(1..=14), 16, 256), 0);
}

#[test]
fn api_753_numbers_go_round_and_use_the_lower_part_last() {
    let last = AtomicU32::new(0);
    let mut taken = BTreeSet::new();
    let mut found = Vec::new();
    for _ in 0..10 {
        let number = search(&(1..=10), 4, &last, |number| !taken.contains(&number)).unwrap();
        assert!(taken.insert(number), "{number} was given twice");
        found.push(number);
    }
    assert_eq!(found, [5, 6, 7, 8, 9, 10, 1, 2, 3, 4]);
    assert_eq!(search(&(1..=10), 4, &last, |number| !taken.contains(&number)), None);
    taken.remove(&6);
    taken.remove(&7);
    last.store(6, Ordering::Relaxed);
    let next = search(&(1..=10), 4, &last, |number| !taken.contains(&number));
    assert_eq!(next, Some(7), "what was freed last comes last");
}

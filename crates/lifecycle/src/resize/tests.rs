//! What the runtime's numbers say about a size (LC-081).

use super::*;

fn demand(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> Demand {
    let list = |pairs: &[(&str, &str)]| -> Resources {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), text.parse().expect("a quantity"))).collect()
    };
    Demand { requests: list(requests), limits: list(limits) }
}

#[test]
fn lc_081_every_request_survives_the_way_through_shares() {
    for milli in [3, 10, 99, 100, 250, 1000, 1001, 64_000] {
        let shares = u64::try_from(milli * 1024 / 1000).expect("positive").max(2);
        assert_eq!(milli_of_shares(shares), milli);
    }
    assert_eq!(milli_of_quota(25_000, Some(100_000)), 250);
}

#[test]
fn lc_081_below_what_cgroups_can_say_the_allocated_value_is_shown() {
    let allocated = demand(&[("cpu", "1m")], &[("cpu", "5m"), ("memory", "64Mi")]);
    let mut actual = allocated.clone();
    let values = CgroupValues {
        cpu_shares: Some(2),
        cpu_quota: Some(1000),
        cpu_period: Some(100_000),
        memory_limit_bytes: Some(32 << 20),
        ..CgroupValues::default()
    };
    overlay(&mut actual, &values);
    round_to(&mut actual, &allocated);
    assert_eq!(actual, demand(&[("cpu", "1m")], &[("cpu", "5m"), ("memory", "32Mi")]));
}

//! What the machine is short of already when a node starts: said at once, with
//! what to do about it, because pods will be refused and evicted for it.

use std::collections::BTreeMap;

use lifecycle::node::{Amount, Reading, Signal, Threshold};

/// One sentence for every hard threshold that is met.
pub(crate) fn warnings(thresholds: &[Threshold], readings: &BTreeMap<Signal, Reading>) -> Vec<String> {
    let of = |threshold: &Threshold| {
        let reading = readings.get(&threshold.signal)?;
        let is_met = threshold.grace.is_none() && reading.available < threshold.value.of(reading.capacity);
        is_met.then(|| sentence(threshold, *reading))
    };
    thresholds.iter().filter_map(of).collect()
}

fn sentence(threshold: &Threshold, reading: Reading) -> String {
    let signal = threshold.signal;
    let condition = match signal {
        Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable => "MemoryPressure",
        Signal::PidAvailable => "PIDPressure",
        Signal::NodefsAvailable
        | Signal::NodefsInodesFree
        | Signal::ImagefsAvailable
        | Signal::ImagefsInodesFree
        | Signal::ContainerfsAvailable
        | Signal::ContainerfsInodesFree => "DiskPressure",
    };
    let limit = match threshold.value {
        Amount::Percent(percent) => format!("{percent}%"),
        Amount::Quantity(quantity) => quantity.to_string(),
    };
    let is_bytes = !matches!(
        signal,
        Signal::NodefsInodesFree | Signal::ImagefsInodesFree | Signal::ContainerfsInodesFree | Signal::PidAvailable
    );
    let amount = |amount: i64| if is_bytes { format!("{} MiB", amount >> 20) } else { amount.to_string() };
    format!(
        "{condition}: {signal} is {} of {}, below its threshold of {limit}; pods will be refused or evicted. \
         Free some, or start with --eviction-hard '{signal}<…'",
        amount(reading.available),
        amount(reading.capacity),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_is_said_with_the_flag_that_changes_it() {
        let thresholds = [
            Threshold::hard(Signal::NodefsAvailable, Amount::Percent(10.0)),
            Threshold::hard(Signal::PidAvailable, Amount::Percent(10.0)),
        ];
        let reading = |available| Reading { available, capacity: 100 << 30 };
        let readings = |disk| {
            let few = Reading { available: 5, capacity: 100 };
            BTreeMap::from([(Signal::NodefsAvailable, reading(disk)), (Signal::PidAvailable, few)])
        };
        let told = warnings(&thresholds, &readings(8 << 30));
        assert_eq!(
            told,
            [
                "DiskPressure: nodefs.available is 8192 MiB of 102400 MiB, below its threshold of 10%; pods will be \
                 refused or evicted. Free some, or start with --eviction-hard 'nodefs.available<…'",
                "PIDPressure: pid.available is 5 of 100, below its threshold of 10%; pods will be refused or evicted. \
                 Free some, or start with --eviction-hard 'pid.available<…'",
            ]
        );
        assert_eq!(warnings(&thresholds[..1], &readings(11 << 30)), [""; 0]);
    }
}

//! Which of the nodes that fit is best: each view gives 0–100, weighted as
//! upstream weighs them (TC-334).

use objects::placement::{Effect, is_tolerated};

use crate::snapshot::Place;
use crate::{Node, PodToPlace, Resources};

/// The scores of `nodes`, in their order.
pub(crate) fn scores(nodes: &[(&Node, &Place)], pod: &PodToPlace) -> Vec<i64> {
    let unwelcome: Vec<_> = nodes.iter().map(|(node, _)| unwelcoming_taints(node, pod)).collect();
    let wished: Vec<_> = nodes.iter().map(|(node, _)| pod.wishes.weight_of(node.face())).collect();
    let unwelcome_max = unwelcome.iter().copied().max().unwrap_or_default();
    let wished_max = wished.iter().copied().max().unwrap_or_default();
    let shares = unwelcome.into_iter().zip(wished);
    nodes
        .iter()
        .zip(shares)
        .map(|((node, place), (unwelcome, wished))| {
            3 * (FULL - share(unwelcome, unwelcome_max))
                + 2 * share(wished, wished_max)
                + least_allocated(node, place, pod)
                + balanced(node, place, pod)
        })
        .collect()
}

const FULL: i64 = 100;

fn share(part: i64, whole: i64) -> i64 {
    if whole == 0 { 0 } else { part * FULL / whole }
}

fn unwelcoming_taints(node: &Node, pod: &PodToPlace) -> i64 {
    let discouraging = node.taints.iter().filter(|taint| taint.effect == Effect::PreferNoSchedule);
    discouraging.filter(|taint| !is_tolerated(taint, &pod.tolerations)).map(|_| 1).sum()
}

/// The mean free share of cpu and memory, were the pod here already.
fn least_allocated(node: &Node, place: &Place, pod: &PodToPlace) -> i64 {
    let free = |resource| {
        let allocatable = node.allocatable.of(resource);
        let taken = place.usage().scored.of(resource).saturating_add(pod.scored.of(resource));
        percent(allocatable.saturating_sub(taken), allocatable)
    };
    let known: Vec<_> = MEASURED.into_iter().filter_map(free).collect();
    known.iter().sum::<i64>() / i64::try_from(known.len().max(1)).unwrap_or(1)
}

/// How alike cpu and memory are used, were the pod here already. Pods that
/// request neither leave the balance alone.
fn balanced(node: &Node, place: &Place, pod: &PodToPlace) -> i64 {
    let used = |resource| {
        let taken = place.usage().requests.of(resource).saturating_add(pod.requests.of(resource));
        percent(taken.min(node.allocatable.of(resource)), node.allocatable.of(resource))
    };
    if MEASURED.into_iter().all(|resource| pod.requests.of(resource) == 0) {
        return 0;
    }
    let [Some(cpu), Some(memory)] = MEASURED.map(used) else { return FULL };
    FULL - (cpu - memory).abs() / 2
}

fn percent(part: u128, whole: u128) -> Option<i64> {
    let percent = part.saturating_mul(100).checked_div(whole)?;
    Some(i64::try_from(percent).unwrap_or(FULL).min(FULL))
}

const MEASURED: [&str; 2] = [Resources::CPU, Resources::MEMORY];

//! Which taints a node has because of its state (TC-176, TC-177).

use ambient::Now;
use objects::api::core::v1::{Node, Taint};
use objects::apimachinery::pkg::apis::meta::v1::Time;
use objects::placement::conditions::{NOT_READY, Readiness, UNREACHABLE, UNSCHEDULABLE, is_of_state, pressures};

const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";

/// TC-177: the two `NoExecute` taints exclude each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoExecute {
    /// None, or this one: changing one for the other needs no leave.
    Stays(Option<&'static str>),
    /// It has none and should get this one, in its turn.
    Wants(&'static str),
}

pub(super) fn no_execute(node: &Node, readiness: Readiness) -> NoExecute {
    let has_one = taints(node).any(sends_away);
    match readiness.taint() {
        Some(key) if has_one => NoExecute::Stays(Some(key)),
        Some(key) if readiness != Readiness::NeverTold => NoExecute::Wants(key),
        Some(_) | None => NoExecute::Stays(None),
    }
}

/// Whether these taints are the first that send its pods away.
pub(super) fn begins_loss(node: &Node, fresh: &[Taint]) -> bool {
    fresh.iter().any(sends_away) && !taints(node).any(sends_away)
}

fn sends_away(taint: &Taint) -> bool {
    taint.effect == NO_EXECUTE && is_loss(&taint.key)
}

/// All taints of the node, if they are to change; those that stay keep their
/// place and their time.
pub(super) fn changed(
    node: &Node,
    readiness: Readiness,
    executes: Option<&'static str>,
    now: Now,
) -> Option<Vec<Taint>> {
    let mut wanted: Vec<(&str, &str)> = no_schedule(node, readiness).map(|key| (key, NO_SCHEDULE)).collect();
    wanted.extend(executes.map(|key| (key, NO_EXECUTE)));
    let is_wanted = |taint: &Taint| wanted.contains(&(taint.key.as_str(), taint.effect.as_str()));
    let stays = |taint: &&Taint| is_wanted(taint) || !is_ours(taint, readiness);
    let mut all: Vec<Taint> = taints(node).filter(stays).cloned().collect();
    let kept = all.len();
    for (key, effect) in wanted {
        if !all.iter().any(|taint| taint.key == key && taint.effect == effect) {
            let (key, effect) = (key.to_owned(), effect.to_owned());
            all.push(Taint { key, effect, time_added: Some(Time(now.wall)), value: None });
        }
    }
    (kept != taints(node).count() || all.len() != kept).then_some(all)
}

/// TC-176, TC-203.
fn no_schedule(node: &Node, readiness: Readiness) -> impl Iterator<Item = &'static str> {
    let is_cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    let lost = readiness.taint().filter(|_| readiness != Readiness::NeverTold);
    lost.into_iter().chain(pressures(node)).chain(is_cordoned.then_some(UNSCHEDULABLE))
}

/// TC-171: a node is born with a taint, which stays until it tells how it is.
fn is_ours(taint: &Taint, readiness: Readiness) -> bool {
    match taint.effect.as_str() {
        NO_SCHEDULE if taint.key == NOT_READY => readiness != Readiness::NeverTold,
        NO_SCHEDULE => is_of_state(&taint.key),
        NO_EXECUTE => is_loss(&taint.key),
        _ => false,
    }
}

fn is_loss(key: &str) -> bool {
    key == NOT_READY || key == UNREACHABLE
}

fn taints(node: &Node) -> impl Iterator<Item = &Taint> {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten())
}

//! Should a container run again? Restart policies and per-container rules.
//!
//! Never: says when (`attempts.rs` and `backoff.rs` do), or where: a restart is
//! always in the same pod (LC-128).

use crate::spec::{ContainerSpec, Operator, PodSpec, RestartPolicy, RestartRule, Role, RuleAction};
use crate::state::Rules;

/// LC-136: after an exit with `code`.
pub(crate) fn should_restart(pod: &PodSpec, container: &ContainerSpec, code: i32, rules: &Rules) -> bool {
    let Some(own) = own_policy(container, rules) else {
        return allows(pod.restart_policy, code);
    };
    match matching_action(&container.restart_rules, code) {
        Some(RuleAction::Restart) => true,
        // LC-135: with its gate off, a stored action falls back to the policy.
        Some(RuleAction::RestartAllContainers) if rules.restart_all_containers => true,
        Some(RuleAction::RestartAllContainers) | None => allows(own, code),
    }
}

/// LC-148: an exit with `code` asks for a restart of all containers.
pub(crate) fn restarts_all(container: &ContainerSpec, code: i32, rules: &Rules) -> bool {
    rules.restart_all_containers
        && own_policy(container, rules).is_some()
        && matching_action(&container.restart_rules, code) == Some(RuleAction::RestartAllContainers)
}

pub(crate) fn has_restart_all_rule(container: &ContainerSpec, rules: &Rules) -> bool {
    let mut actions = container.restart_rules.iter().map(|rule| rule.action);
    own_policy(container, rules).is_some() && actions.any(|action| action == RuleAction::RestartAllContainers)
}

/// LC-137: whether a container that the agent kills comes back; rules are
/// not asked, because there is no exit code yet.
pub(crate) fn restarts_after_kill(pod: &PodSpec, container: &ContainerSpec, rules: &Rules) -> bool {
    own_policy(container, rules).unwrap_or(pod.restart_policy) != RestartPolicy::Never
}

/// LC-127: a sidecar has its own policy. LC-043: with the gate off, nobody else.
fn own_policy(container: &ContainerSpec, rules: &Rules) -> Option<RestartPolicy> {
    container.restart_policy.filter(|_| rules.container_restart_rules || container.role == Role::Sidecar)
}

/// LC-126, LC-270.
fn allows(policy: RestartPolicy, code: i32) -> bool {
    match policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => code != 0,
        RestartPolicy::Never => false,
    }
}

/// LC-133, LC-134: the first rule that matches.
fn matching_action(rules: &[RestartRule], code: i32) -> Option<RuleAction> {
    let matches = |rule: &&RestartRule| match rule.operator {
        Operator::In => rule.codes.contains(&code),
        Operator::NotIn => !rule.codes.contains(&code),
    };
    rules.iter().find(matches).map(|rule| rule.action)
}

#[cfg(test)]
mod tests;

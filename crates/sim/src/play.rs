//! Plays a scenario: the pods of a story live side by side, each in a world
//! of its own, and whatever the script does not say goes well.

use std::time::Duration;

use lifecycle::{Fact, HookKind, ProbeKind, Rules};
use objects::api::core::v1::{Container, ContainerState, LifecycleHandler, Pod, PodCondition, PodSpec};

use crate::scenario::{Deed, PullRun, Scenario, ScenarioError, Step};
use crate::script::Script;
use crate::transcript::Line;
use crate::world::Life;

/// Without a script, init containers are done this soon,
const INIT_TAKES: Duration = Duration::from_secs(1);
/// and so are containers that are meant to end.
const JOB_TAKES: Duration = Duration::from_secs(10);

/// What became of one pod.
#[derive(Debug)]
pub struct Played {
    /// `namespace/name`
    pub name: String,
    pub lines: Vec<Line>,
}

/// Lives all pods to the end of the story, or until `until`.
pub fn play(pods: Vec<Pod>, rules: &Rules, scenario: &Scenario, until: Duration) -> Result<Vec<Played>, ScenarioError> {
    for step in &scenario.steps {
        check(step, &pods)?;
    }
    let mut played = Vec::new();
    for pod in pods {
        let name = name_of(&pod);
        let steps: Vec<&Step> = scenario.steps.iter().filter(|step| concerns(step, &pod)).collect();
        let lines = live(pod, rules, &steps, until)?;
        played.push(Played { name, lines });
    }
    Ok(played)
}

fn name_of(pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    format!("{namespace}/{}", pod.metadata.name.as_deref().unwrap_or_default())
}

/// A step that names a container concerns the pods that have it.
fn concerns(step: &Step, pod: &Pod) -> bool {
    let is_named = step.pod.as_ref().is_none_or(|named| is_called(pod, named));
    is_named && step.deed.container().is_none_or(|name| containers(pod).any(|container| container.name == name))
}

fn is_called(pod: &Pod, named: &str) -> bool {
    pod.metadata.name.as_deref() == Some(named) || name_of(pod) == named
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_ref());
    init.into_iter().flatten().chain(spec.into_iter().flat_map(|spec| &spec.containers))
}

/// Names what is not there before anything is played.
fn check(step: &Step, pods: &[Pod]) -> Result<(), ScenarioError> {
    let wrong = |problem| Err(ScenarioError { line: step.line, problem });
    let mut meant = pods.iter().filter(|pod| step.pod.as_ref().is_none_or(|named| is_called(pod, named))).peekable();
    if let (Some(named), None) = (&step.pod, meant.peek()) {
        return wrong(format!("no pod {named:?}; possible: {}", list(pods.iter().map(name_of))));
    }
    let Some(name) = step.deed.container() else { return Ok(()) };
    let meant: Vec<&Pod> = meant.collect();
    let Some(container) = meant.iter().flat_map(|pod| containers(pod)).find(|container| container.name == name) else {
        let known = list(meant.iter().flat_map(|pod| containers(pod)).map(|container| container.name.clone()));
        return wrong(format!("no container {name:?}; possible: {known}"));
    };
    match &step.deed {
        Deed::Probe { kind, .. } if !has_probe(container, *kind) => {
            wrong(format!("container {name:?} has no {} probe", kind.to_string().to_lowercase()))
        }
        Deed::Hook { kind, .. } if hook(container, *kind).is_none() => {
            wrong(format!("container {name:?} has no {kind:?} hook"))
        }
        _ => Ok(()),
    }
}

fn list(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

fn has_probe(container: &Container, kind: ProbeKind) -> bool {
    match kind {
        ProbeKind::Startup => container.startup_probe.is_some(),
        ProbeKind::Liveness => container.liveness_probe.is_some(),
        ProbeKind::Readiness => container.readiness_probe.is_some(),
    }
}

fn hook(container: &Container, kind: HookKind) -> Option<&LifecycleHandler> {
    let lifecycle = container.lifecycle.as_ref()?;
    match kind {
        HookKind::PostStart => lifecycle.post_start.as_ref(),
        HookKind::PreStop => lifecycle.pre_stop.as_ref(),
    }
}

fn live(pod: Pod, rules: &Rules, steps: &[&Step], until: Duration) -> Result<Vec<Line>, ScenarioError> {
    let mut story = Script::of(pod, rules.clone())
        .map_err(|error| ScenarioError { line: 0, problem: format!("{}: {}", error.field, error.problem) })?;
    story.tells_exits = true;
    set_defaults(&mut story, steps);
    let (rules, events): (Vec<&Step>, Vec<&Step>) =
        steps.iter().partition(|step| step.deed.is_rule() && step.at.is_zero());
    for step in rules {
        apply(&mut story, step)?;
    }
    story.begin();
    for step in events.into_iter().filter(|step| step.at <= until) {
        story.until(step.at.as_secs_f64());
        apply(&mut story, step)?;
    }
    story.until(until.as_secs_f64());
    Ok(story.lines().to_vec())
}

/// Init containers end well, and so do containers that do not restart when
/// they do; the script's word about a container's end replaces ours.
fn set_defaults(story: &mut Script, steps: &[&Step]) {
    let Some(PodSpec { init_containers, containers, restart_policy, .. }) = story.pod.spec.clone() else { return };
    let is_told = |name: &str| {
        steps.iter().any(|step| match &step.deed {
            Deed::Exit { container, .. } => container == name,
            Deed::Lives { container, .. } => container.as_deref().is_none_or(|container| container == name),
            _ => false,
        })
    };
    let policy = restart_policy.unwrap_or_default();
    for container in init_containers.iter().flatten().filter(|container| !is_told(&container.name)) {
        if container.restart_policy.as_deref() != Some("Always") {
            let life = Life { after: INIT_TAKES, code: 0, left: None };
            story.world.lives.insert(container.name.clone(), life);
        }
    }
    for container in containers.iter().filter(|container| !is_told(&container.name)) {
        if container.restart_policy.as_ref().unwrap_or(&policy) != "Always" {
            let life = Life { after: JOB_TAKES, code: 0, left: None };
            story.world.lives.insert(container.name.clone(), life);
        }
    }
    for container in init_containers.iter().flatten().chain(&containers) {
        // TC-072, TC-077: images of a simulation have none of their own.
        if story.rules.container_stop_signals {
            let told = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.clone());
            let signal = told.unwrap_or_else(|| "SIGTERM".to_owned());
            story.world.stop_signals.insert(container.name.clone(), signal);
        }
        for kind in [HookKind::PostStart, HookKind::PreStop] {
            if let Some(sleep) = hook(container, kind).and_then(|hook| hook.sleep.as_ref()) {
                let takes = Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0));
                story.world.hooks.insert((container.name.clone(), kind), (Some(takes), None));
            }
        }
    }
}

fn apply(story: &mut Script, step: &Step) -> Result<(), ScenarioError> {
    let impossible = |problem: String| Err(ScenarioError { line: step.line, problem });
    let named = |container: &Option<String>| match container {
        Some(name) => vec![name.clone()],
        None => containers(&story.pod).map(|container| container.name.clone()).collect(),
    };
    match &step.deed {
        Deed::Exit { container, .. } if story.world.running(container) == 0 => {
            let state = state_words(story, container);
            let at = story.seconds();
            return impossible(format!("container {container:?} cannot exit at {at}s: it does not run ({state})"));
        }
        deed if !story.is_object_there() && needs_object(deed) => {
            let at = story.seconds();
            return impossible(format!("impossible at {at}s: the pod is gone"));
        }
        Deed::Exit { container, code, reason: Some(reason) } => drop(story.exits_as(container, *code, reason)),
        Deed::Exit { container, code, reason: None } => drop(story.exits(container, *code)),
        Deed::Probe { container, kind, result } => drop(story.probe_says(container, *kind, result.clone())),
        Deed::Hook { container, kind, takes, error } => {
            story.world.hooks.insert((container.clone(), *kind), (*takes, error.clone()));
        }
        Deed::Delete { grace } => delete(story, *grace),
        Deed::KubeletRestarts => drop(story.agent_restarted()),
        Deed::NodeReboots => drop(story.node_rebooted()),
        Deed::Evict { eviction } => {
            let what = format!("the node ends the pod: {}", eviction.message.trim_end());
            story.told(&what, Fact::Evicted(eviction.clone()));
        }
        Deed::Resize { container, requests, limits } => {
            story.resize(container, requests, limits);
            let granted = Fact::Resized(story.desired());
            story.told("the node grants the new size", granted);
        }
        Deed::Api { is_up } => {
            let words = if *is_up { "the API answers again" } else { "the API does not answer" };
            story.happen(if *is_up { "ApiUp" } else { "ApiDown" }, None, serde_json::Value::Null, words.to_owned());
            story.is_api_up = *is_up;
            story.settle();
        }
        Deed::SandboxLost => drop(story.sandbox_lost(255)),
        Deed::SandboxFails { message } => story.world.bad_sandbox = message.clone(),
        Deed::Pull { container, how } => named(container).iter().for_each(|name| set_pull(story, name, how)),
        Deed::Start { container, trouble: Some(trouble) } => {
            story.world.failing_starts.insert(container.clone(), trouble.clone());
        }
        Deed::Start { container, trouble: None } => drop(story.world.failing_starts.remove(container)),
        Deed::OnTerm { container, manner } => {
            for name in named(container) {
                story.on_term(&name, *manner);
            }
        }
        Deed::Lives { container, life } => {
            named(container).iter().for_each(|name| set_life(story, name, life.as_ref()))
        }
        Deed::Condition { kind, status } => set_condition(story, kind, status),
        Deed::Update { container, image } => drop(story.image(container, image)),
    }
    Ok(())
}

fn needs_object(deed: &Deed) -> bool {
    match deed {
        Deed::Delete { .. } | Deed::KubeletRestarts | Deed::NodeReboots => true,
        Deed::Condition { .. } | Deed::Update { .. } | Deed::Evict { .. } | Deed::Resize { .. } => true,
        Deed::Exit { .. } | Deed::Probe { .. } | Deed::Hook { .. } | Deed::Api { .. } | Deed::SandboxLost => false,
        Deed::SandboxFails { .. } | Deed::Pull { .. } | Deed::Start { .. } => false,
        Deed::OnTerm { .. } | Deed::Lives { .. } => false,
    }
}

/// What the API server does with a delete: grace can only get shorter
/// (TC-022), and a pod that is over (TC-017) or must not wait (TC-020) is gone
/// at once.
fn delete(story: &mut Script, grace: Option<Duration>) {
    let default = story.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
    let wanted = grace.map_or(default, |grace| i64::try_from(grace.as_secs()).unwrap_or(i64::MAX));
    let given = story.pod.metadata.deletion_grace_period_seconds.unwrap_or(i64::MAX);
    let is_over =
        matches!(story.pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"));
    if wanted == 0 || is_over {
        let detail = serde_json::json!({ "gracePeriodSeconds": 0 });
        story.happen("PodDeleted", None, detail, "deleted with grace 0".to_owned());
        story.gone();
    } else if wanted < given {
        story.deleted(wanted);
    }
}

fn set_pull(story: &mut Script, container: &str, how: &PullRun) {
    let world = &mut story.world;
    match how {
        PullRun::Fails(trouble) => drop(world.bad_pulls.insert(container.to_owned(), trouble.clone())),
        PullRun::Takes(time) => drop(world.slow_pulls.insert(container.to_owned(), *time)),
        PullRun::Succeeds => drop(world.bad_pulls.remove(container)),
    }
}

fn set_life(story: &mut Script, container: &str, life: Option<&Life>) {
    match life {
        Some(life) => drop(story.world.lives.insert(container.to_owned(), life.clone())),
        None => drop(story.world.lives.remove(container)),
    }
}

fn set_condition(story: &mut Script, kind: &str, status: &str) {
    let condition = PodCondition { type_: kind.to_owned(), status: status.to_owned(), ..PodCondition::default() };
    story.status(&format!("condition {kind} becomes {status}"), |pod| {
        let conditions = pod.conditions.get_or_insert_default();
        conditions.retain(|other| other.type_ != kind);
        conditions.push(condition);
    });
}

/// Where a container is, in a few words.
fn state_words(story: &Script, container: &str) -> String {
    let status = story.rendered();
    let all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let state = all.filter(|status| status.name == container).find_map(|status| status.state.clone());
    match state {
        Some(ContainerState { waiting: Some(waiting), .. }) => {
            format!("waiting: {}", waiting.reason.unwrap_or_else(|| "not started yet".to_owned()))
        }
        Some(ContainerState { terminated: Some(end), .. }) => format!("ended with code {}", end.exit_code),
        _ => "not started yet".to_owned(),
    }
}

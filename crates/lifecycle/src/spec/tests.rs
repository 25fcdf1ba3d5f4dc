//! What `parse` accepts, defaults and refuses.

use super::*;
use objects::api::core::v1::{ContainerRestartRule, ContainerRestartRuleOnExitCodes};

fn pod(edit: impl FnOnce(&mut Pod)) -> Result<PodSpec, SpecError> {
    let app = Container { name: "app".into(), image: Some("app".into()), ..Container::default() };
    let mut pod = Pod { spec: Some(ApiSpec { containers: vec![app], ..ApiSpec::default() }), ..Pod::default() };
    pod.metadata.uid = Some("u".into());
    pod.metadata.name = Some("p".into());
    pod.metadata.namespace = Some("ns".into());
    edit(&mut pod);
    PodSpec::parse(&pod)
}

fn spec(pod: &mut Pod) -> &mut ApiSpec {
    pod.spec.as_mut().expect("the fixture has a spec")
}

#[test]
fn lc_125_lc_273_a_bare_pod_gets_the_documented_defaults() {
    let parsed = pod(|_| {}).expect("a valid pod");
    assert_eq!(parsed.restart_policy, RestartPolicy::Always);
    assert_eq!(parsed.grace, Duration::from_secs(30));
    assert_eq!(parsed.deletion, None);
    assert_eq!(parsed.qos_class, "BestEffort");
    let negative = pod(|pod| spec(pod).termination_grace_period_seconds = Some(-3)).expect("a valid pod");
    assert_eq!(negative.grace, Duration::from_secs(1));
}

#[test]
fn lc_307_the_pull_policy_follows_the_tag() {
    let cases = [
        ("app", PullPolicy::Always),
        ("app:latest", PullPolicy::Always),
        ("app:1", PullPolicy::IfNotPresent),
        ("host:5000/app", PullPolicy::Always),
        ("host:5000/app:1", PullPolicy::IfNotPresent),
        ("app@sha256:00", PullPolicy::IfNotPresent),
    ];
    for (image, expected) in cases {
        let parsed = pod(|pod| spec(pod).containers[0].image = Some(image.into())).expect("a valid pod");
        assert_eq!(parsed.apps[0].pull_policy, expected, "{image}");
    }
}

#[test]
fn lc_132_always_makes_an_init_container_a_sidecar() {
    let init = |policy: Option<&str>| Container {
        name: "i".into(),
        restart_policy: policy.map(str::to_owned),
        ..Container::default()
    };
    for (policy, role) in [(None, Role::Init), (Some("Never"), Role::Init), (Some("Always"), Role::Sidecar)] {
        let parsed = pod(|pod| spec(pod).init_containers = Some(vec![init(policy)])).expect("a valid pod");
        assert_eq!(parsed.init[0].role, role, "{policy:?}");
    }
}

#[test]
fn what_cannot_be_a_pod_is_refused_with_its_field() {
    let rule = |operator: &str, action: &str| ContainerRestartRule {
        action: action.into(),
        exit_codes: Some(ContainerRestartRuleOnExitCodes { operator: operator.into(), values: None }),
    };
    let field = |edit: &dyn Fn(&mut Pod)| pod(|pod| edit(pod)).expect_err("not a pod").field;
    assert_eq!(field(&|pod| pod.metadata.uid = None), "metadata.uid");
    assert_eq!(field(&|pod| pod.metadata.name = None), "metadata.name");
    assert_eq!(field(&|pod| pod.metadata.namespace = None), "metadata.namespace");
    assert_eq!(field(&|pod| pod.spec = None), "spec");
    assert_eq!(field(&|pod| spec(pod).containers.clear()), "spec.containers");
    assert_eq!(field(&|pod| spec(pod).restart_policy = Some("Sometimes".into())), "spec.restartPolicy");
    let pull = |pod: &mut Pod| spec(pod).containers[0].image_pull_policy = Some("Maybe".into());
    assert_eq!(field(&pull), "spec.containers[0].imagePullPolicy");
    let operator = |pod: &mut Pod| spec(pod).containers[0].restart_policy_rules = Some(vec![rule("Like", "Restart")]);
    assert_eq!(field(&operator), "spec.containers[0].restartPolicyRules[0].exitCodes.operator");
    let action = |pod: &mut Pod| spec(pod).containers[0].restart_policy_rules = Some(vec![rule("In", "Dance")]);
    assert_eq!(field(&action), "spec.containers[0].restartPolicyRules[0].action");
}

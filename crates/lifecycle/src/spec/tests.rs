//! What `parse` accepts, defaults and refuses.

use super::*;
use objects::api::core::v1::{
    ContainerPort, ContainerRestartRule, ContainerRestartRuleOnExitCodes, EphemeralContainer, ExecAction, GRPCAction,
    HTTPGetAction, Lifecycle, LifecycleHandler, Probe, ResourceRequirements, SleepAction, TCPSocketAction,
};
use objects::apimachinery::pkg::util::intstr::IntOrString;

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

fn exec() -> ExecAction {
    ExecAction { command: Some(vec!["true".into()]) }
}

fn get() -> HTTPGetAction {
    HTTPGetAction { port: IntOrString::Int(80), ..HTTPGetAction::default() }
}

fn socket() -> TCPSocketAction {
    TCPSocketAction { port: IntOrString::String("web".into()), host: None }
}

/// The app of a pod with this probe as its liveness probe.
fn probed(probe: Probe) -> Result<ProbeSpec, SpecError> {
    let parsed = pod(|pod| spec(pod).containers[0].liveness_probe = Some(probe))?;
    Ok(parsed.apps[0].handlers.liveness.clone().expect("the probe"))
}

#[test]
fn lc_241_dec_13_what_a_probe_leaves_out() {
    let bare = Probe { http_get: Some(get()), ..Probe::default() };
    let zero = Probe {
        initial_delay_seconds: Some(0),
        period_seconds: Some(0),
        timeout_seconds: Some(0),
        success_threshold: Some(0),
        failure_threshold: Some(0),
        ..bare.clone()
    };
    for given in [bare, zero] {
        let probe = probed(given).expect("a valid probe");
        let seconds = |duration: Duration| duration.as_secs();
        assert_eq!((seconds(probe.initial_delay), seconds(probe.timeout), seconds(probe.period)), (0, 1, 10));
        assert_eq!((probe.success_threshold, probe.failure_threshold, probe.grace), (1, 3, None));
        let Mechanism::HttpGet(get) = probe.mechanism else { panic!("not an HTTP probe") };
        assert_eq!((get.path.as_str(), get.is_https, get.host), ("/", false, None));
    }
    let own = Probe { termination_grace_period_seconds: Some(7), exec: Some(exec()), ..Probe::default() };
    assert_eq!(probed(own).expect("a valid probe").grace, Some(Duration::from_secs(7)));
}

#[test]
fn lc_242_a_probe_has_exactly_one_mechanism() {
    let grpc = GRPCAction { port: 9000, service: None };
    let one = [
        (Probe { exec: Some(exec()), ..Probe::default() }, Mechanism::Exec { command: vec!["true".into()] }),
        (
            Probe { tcp_socket: Some(socket()), ..Probe::default() },
            Mechanism::TcpSocket { host: None, port: Port::Unknown("web".into()) },
        ),
        (Probe { grpc: Some(grpc), ..Probe::default() }, Mechanism::Grpc { port: 9000, service: String::new() }),
    ];
    for (probe, mechanism) in one {
        assert_eq!(probed(probe).expect("a valid probe").mechanism, mechanism);
    }
    let problem = |probe: Probe| probed(probe).map(|_| ()).map_err(|error| (error.field, error.problem));
    let field = "spec.containers[0].livenessProbe".to_owned();
    assert_eq!(problem(Probe::default()), Err((field.clone(), "must specify a handler type".to_owned())));
    let two = Probe { exec: Some(exec()), tcp_socket: Some(socket()), ..Probe::default() };
    assert_eq!(problem(two), Err((field, "may not specify more than 1 handler type".to_owned())));
}

#[test]
fn lc_243_apps_and_sidecars_may_have_three_kinds_of_probes_and_need_none() {
    let plain = pod(|_| {}).expect("a valid pod");
    assert!(ProbeKind::ALL.into_iter().all(|kind| plain.probe("app", kind).is_none()));
    let probe = || Some(Probe { exec: Some(exec()), ..Probe::default() });
    let full = |name: &str, policy: Option<&str>| Container {
        name: name.into(),
        restart_policy: policy.map(str::to_owned),
        startup_probe: probe(),
        liveness_probe: probe(),
        readiness_probe: probe(),
        ..Container::default()
    };
    let parsed = pod(|pod| {
        spec(pod).containers = vec![full("app", None)];
        spec(pod).init_containers = Some(vec![full("proxy", Some("Always"))]);
    });
    let parsed = parsed.expect("a valid pod");
    for name in ["app", "proxy"] {
        assert!(ProbeKind::ALL.into_iter().all(|kind| parsed.probe(name, kind).is_some()), "{name}");
    }
    assert_eq!(ProbeKind::ALL.map(|kind| kind.to_string()), ["Startup", "Liveness", "Readiness"]);
}

#[test]
fn lc_223_a_hook_has_exactly_one_handler() {
    let hooked = |handler: LifecycleHandler| {
        let lifecycle = Lifecycle { post_start: Some(handler.clone()), pre_stop: Some(handler), stop_signal: None };
        let parsed = pod(|pod| spec(pod).containers[0].lifecycle = Some(lifecycle))?;
        assert_eq!(parsed.hook("app", HookKind::PostStart), parsed.hook("app", HookKind::PreStop));
        Ok::<_, SpecError>(parsed.hook("app", HookKind::PreStop).cloned().expect("the hook"))
    };
    let exec_hook = LifecycleHandler { exec: Some(exec()), ..LifecycleHandler::default() };
    assert_eq!(hooked(exec_hook.clone()), Ok(HookSpec::Exec { command: vec!["true".into()] }));
    let sleep = LifecycleHandler { sleep: Some(SleepAction { seconds: 5 }), ..LifecycleHandler::default() };
    assert_eq!(hooked(sleep.clone()), Ok(HookSpec::Sleep(Duration::from_secs(5))));
    let http = LifecycleHandler { http_get: Some(get()), ..LifecycleHandler::default() };
    assert!(matches!(hooked(http), Ok(HookSpec::HttpGet(_))));
    // Deprecated: understood, and known to fail.
    let tcp = LifecycleHandler { tcp_socket: Some(socket()), ..LifecycleHandler::default() };
    assert_eq!(hooked(tcp), Ok(HookSpec::TcpSocket));
    let problem = |handler| hooked(handler).map_err(|error| (error.field, error.problem));
    let field = "spec.containers[0].lifecycle.postStart".to_owned();
    let none = Err((field.clone(), "must specify a handler type".to_owned()));
    assert_eq!(problem(LifecycleHandler::default()), none);
    let two = LifecycleHandler { sleep: sleep.sleep, ..exec_hook };
    assert_eq!(problem(two), Err((field, "may not specify more than 1 handler type".to_owned())));
}

/// LC-361: an object that has more, from wherever, gets no more.
#[test]
fn lc_361_an_ephemeral_container_has_neither_probes_nor_hooks_nor_resources() {
    let quantity = objects::apimachinery::pkg::api::resource::Quantity("1".into());
    let shell = EphemeralContainer {
        name: "shell".into(),
        image: Some("shell:1".into()),
        liveness_probe: Some(Probe { exec: Some(exec()), ..Probe::default() }),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler { exec: Some(exec()), ..LifecycleHandler::default() }),
            ..Lifecycle::default()
        }),
        ports: Some(vec![ContainerPort { container_port: 80, host_port: Some(80), ..ContainerPort::default() }]),
        resources: Some(ResourceRequirements {
            requests: Some([("cpu".to_owned(), quantity)].into()),
            ..ResourceRequirements::default()
        }),
        restart_policy: Some("Always".into()),
        ..EphemeralContainer::default()
    };
    let parsed = pod(|pod| spec(pod).ephemeral_containers = Some(vec![shell])).expect("a valid pod");
    assert_eq!(parsed.ephemeral[0].handlers, Handlers::default());
    assert_eq!((parsed.ephemeral[0].demand.clone(), parsed.ephemeral[0].restart_policy), (Demand::default(), None));
    assert!(parsed.needs.ports.is_empty());
}

//! How image and pod are merged.

use std::collections::BTreeMap;

use super::*;

fn config() -> ContainerConfig {
    ContainerConfig {
        name: "c".into(),
        attempt: 0,
        image: "busybox".into(),
        command: vec![],
        args: vec![],
        working_dir: String::new(),
        envs: vec![],
        mounts: vec![],
        log_path: "c/0.log".into(),
        resources: cri::Resources::default(),
        security: SecurityContext::default(),
        stop_signal: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        stdin: false,
        tty: false,
        stdin_once: false,
        devices: Vec::new(),
    }
}

fn image() -> ImageConfig {
    ImageConfig {
        entrypoint: vec!["/entry".into()],
        cmd: vec!["default".into()],
        env: vec!["PATH=/img".into(), "A=1".into()],
        user: "web".into(),
        working_dir: "/srv".into(),
        stop_signal: Some("SIGQUIT".into()),
        volumes: vec![],
    }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn a_command_replaces_the_entrypoint_and_the_image_arguments() {
    let check = |command: &[&str], args: &[&str]| {
        let config = ContainerConfig { command: strings(command), args: strings(args), ..config() };
        program(&config, &image(), "h").unwrap().args.join(" ")
    };
    assert_eq!(check(&[], &[]), "/entry default");
    assert_eq!(check(&[], &["x"]), "/entry x");
    assert_eq!(check(&["sh"], &[]), "sh");
    assert_eq!(check(&["sh"], &["-c", "y"]), "sh -c y");
}

#[test]
fn later_environment_entries_win_and_appear_once() {
    let config = ContainerConfig { envs: vec![("A".into(), "2".into()), ("B".into(), "x=y".into())], ..config() };
    let env = program(&config, &image(), "web-0").unwrap().env;
    assert_eq!(env, ["PATH=/img", "HOSTNAME=web-0", "A=2", "B=x=y"]);
}

#[test]
fn lc_322_tens_of_thousands_of_variables_are_merged_in_order() {
    let envs = |value: &str| (0..80_000).map(|n| (format!("V{n}"), value.to_owned())).collect::<Vec<_>>();
    let config = ContainerConfig { envs: [envs("old"), envs("new")].concat(), ..config() };
    let env = program(&config, &image(), "h").unwrap().env;
    assert_eq!(env.len(), 3 + 80_000);
    assert_eq!((env[3].as_str(), env[80_002].as_str()), ("V0=new", "V79999=new"));
}

#[test]
fn lc_322_what_the_kernel_would_refuse_is_refused_whoever_says_it() {
    let refused = |image: &ImageConfig| program(&config(), image, "h").unwrap_err().to_string();
    let of_env = |env: Vec<String>| refused(&ImageConfig { env, ..image() });
    assert!(of_env(vec![format!("A={}", "x".repeat(128 << 10))]).contains("argument list too long: an argument"));
    let many: Vec<String> = (0..30).map(|n| format!("V{n}={}", "x".repeat(100_000))).collect();
    assert!(of_env(many).contains("argument list too long: environment and arguments"));
    let long = refused(&ImageConfig { cmd: vec!["x".repeat(128 << 10)], ..image() });
    assert!(long.contains("argument list too long: an argument"), "{long}");
}

#[test]
fn tc_072_the_pods_stop_signal_beats_the_images() {
    let pod = ContainerConfig { stop_signal: Some("SIGUSR1".into()), ..config() };
    assert_eq!(program(&pod, &image(), "h").unwrap().stop_signal, 10);
    assert_eq!(program(&config(), &image(), "h").unwrap().stop_signal, 3);
    let silent = ImageConfig { stop_signal: None, ..image() };
    assert_eq!(program(&config(), &silent, "h").unwrap().stop_signal, 15);
    let odd = ContainerConfig { stop_signal: Some("SIGWHAT".into()), ..config() };
    assert!(matches!(program(&odd, &image(), "h"), Err(CriError::Invalid(_))));
}

#[test]
fn capabilities_are_added_to_and_dropped_from_the_default_set() {
    let check = |add: &[&str], drop: &[&str]| {
        let security = SecurityContext {
            capabilities_add: strings(add),
            capabilities_drop: strings(drop),
            ..SecurityContext::default()
        };
        program(&ContainerConfig { security, ..config() }, &image(), "h").map(|program| program.capabilities)
    };
    assert_eq!(check(&[], &[]).unwrap().len(), 14);
    assert_eq!(check(&["NET_BIND_SERVICE"], &["ALL"]).unwrap(), ["CAP_NET_BIND_SERVICE"]);
    assert_eq!(check(&["ALL"], &["CAP_SYS_ADMIN"]).unwrap().len(), 40);
    assert!(matches!(check(&["MAGIC"], &[]), Err(CriError::Invalid(_))));
}

#[test]
fn a_program_needs_a_command_and_an_absolute_directory() {
    let empty = ImageConfig { entrypoint: vec![], cmd: vec![], ..image() };
    assert_eq!(program(&config(), &empty, "h"), Err(CriError::Invalid("no command specified".into())));
    let relative = ContainerConfig { working_dir: "srv".into(), ..config() };
    assert!(matches!(program(&relative, &image(), "h"), Err(CriError::Invalid(_))));
}

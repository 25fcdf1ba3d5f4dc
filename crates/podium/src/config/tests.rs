//! What a configuration file can say, and what it cannot.

use std::time::Duration;

use expect_test::{Expect, expect};
use kubelet::{ImageTrust, Periods};
use lifecycle::Rules;

use super::*;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

fn read(text: &str, flags: &str) -> Result<Settings> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("c.yaml");
    std::fs::write(&path, text).unwrap();
    Settings::read(Some(&path), flags).map_err(|error| {
        let text = format!("{error:#}");
        anyhow::anyhow!(text.replace(&format!("{}/", directory.path().display()), ""))
    })
}

fn refused(text: &str, expected: Expect) {
    expected.assert_eq(&read(text, "").unwrap_err().to_string());
}

fn rules(settings: &Settings) -> Rules {
    settings.kubelet.rules(&settings.gates, Rules::upstream(Vec::new()))
}

/// Upstream's, but for the processes of a pod (0039).
fn unconfigured() -> Rules {
    let upstream = Rules::upstream(Vec::new());
    Rules { machine: lifecycle::Machine { pod_pids_limit: 4096, ..upstream.machine.clone() }, ..upstream }
}

#[test]
fn nothing_said_is_upstreams_default() {
    let settings = Settings::read(None, "").unwrap();
    assert_eq!(rules(&settings), unconfigured());
    assert_eq!(settings.kubelet.periods(), Periods::default());
    assert_eq!(settings.gates, Gates::default());
}

#[test]
fn two_documents_say_what_the_node_and_podium_do() {
    let text = format!(
        "{HEAD}maxPods: 7\nnodeLeaseDurationSeconds: 8\nnodeStatusUpdateFrequency: 1m30s\n---\n\
         apiVersion: podium/v1alpha1\nkind: PodiumConfiguration\nbind: 127.0.0.1:7443\npodCIDR: 10.1.0.0/24\n\
         dataDir: /srv/p\nlog: info\nstopPods: true\n"
    );
    let settings = read(&text, "").unwrap();
    assert_eq!(settings.kubelet.max_pods, Some(7));
    let periods = settings.kubelet.periods();
    assert_eq!((periods.lease_duration, periods.lease_renew), (Duration::from_secs(8), Duration::from_secs(2)));
    assert_eq!((periods.node_status, periods.node_report), (Duration::from_secs(90), Duration::from_secs(90)));
    let podium = settings.podium;
    assert_eq!(podium.bind, Some("127.0.0.1:7443".parse().unwrap()));
    assert_eq!(podium.pod_cidr.as_deref(), Some("10.1.0.0/24"));
    assert_eq!(podium.data_dir, Some("/srv/p".into()));
    assert_eq!((podium.log.as_deref(), podium.stop_pods), (Some("info"), true));
}

#[test]
fn lc_392_flags_win_over_podium_and_podium_over_the_kubelet() {
    let text = format!(
        "{HEAD}featureGates: {{MemoryQoS: true, ContainerStopSignals: true, ContainerRestartRules: false}}\n---\n\
         apiVersion: podium/v1alpha1\nkind: PodiumConfiguration\nfeatureGates: {{ContainerStopSignals: false, MemoryQoS: false}}\n"
    );
    let gates = read(&text, "MemoryQoS=true").unwrap().gates;
    assert_eq!(gates.changed().collect::<Vec<_>>(), ["ContainerRestartRules", "MemoryQoS"]);
}

#[test]
fn lc_392_gates_reach_the_rules() {
    let all = "NodeDeclaredFeatures=true,RestartAllContainersOnContainerExits=true,ContainerStopSignals=true,\
        ChangeContainerStatusOnKubeletRestart=true,PodReadyToStartContainersCondition=false";
    let settings = Settings::read(None, all).unwrap();
    let wanted = Rules {
        restart_all_containers: true,
        container_stop_signals: true,
        change_status_on_agent_restart: true,
        ready_to_start_condition: false,
        ..unconfigured()
    };
    assert_eq!(rules(&settings), wanted);
    assert!(!rules(&Settings::read(None, "ContainerRestartRules=false").unwrap()).container_restart_rules);
}

#[test]
fn lc_178_lc_179_lc_180_dec_11_the_back_off_comes_from_field_and_gate() {
    let seconds = |text: &str, flags: &str| {
        let rules = rules(&read(&format!("{HEAD}{text}"), flags).unwrap());
        (rules.backoff_initial.as_secs(), rules.backoff_max.as_secs())
    };
    let reduced = "ReduceDefaultCrashLoopBackOffDecay=true";
    assert_eq!(seconds("", ""), (10, 300));
    assert_eq!(seconds("", reduced), (1, 60));
    assert_eq!(seconds("crashLoopBackOff: {maxContainerRestartPeriod: 100s}", ""), (10, 100));
    assert_eq!(seconds("crashLoopBackOff: {maxContainerRestartPeriod: 2s}", ""), (2, 2));
    assert_eq!(seconds("crashLoopBackOff: {maxContainerRestartPeriod: 5m}", reduced), (1, 300));
}

#[test]
fn lc_088_the_limits_of_logs_come_from_the_file() {
    let limits = |text: &str| {
        let kubelet = read(&format!("{HEAD}{text}"), "").unwrap().kubelet;
        let limits = kubelet.log_limits();
        (limits.file_bytes_max, limits.files_max, kubelet.log_workers(), kubelet.periods().log_check.as_secs())
    };
    assert_eq!(limits(""), (10 << 20, 5, 1, 10));
    let all = "containerLogMaxSize: 50Ki\ncontainerLogMaxFiles: 3\ncontainerLogMaxWorkers: 4\n\
        containerLogMonitorInterval: 1m";
    assert_eq!(limits(all), (50 << 10, 3, 4, 60));
    assert_eq!(limits("containerLogMaxSize: '-1'").0, u64::MAX);
}

#[test]
fn limits_of_logs_that_limit_nothing_are_refused() {
    refused(&format!("{HEAD}containerLogMaxFiles: 1"), expect!["containerLogMaxFiles: must be greater than 1"]);
    refused(&format!("{HEAD}containerLogMaxSize: '0'"), expect!["containerLogMaxSize: must not be 0"]);
    refused(
        &format!("{HEAD}containerLogMaxSize: much"),
        expect![[r#"c.yaml: KubeletConfiguration: containerLogMaxSize: "much" is not a quantity; say 10Mi"#]],
    );
    refused(&format!("{HEAD}containerLogMaxWorkers: 0"), expect!["containerLogMaxWorkers: must be greater than 0"]);
    refused(
        &format!("{HEAD}containerLogMonitorInterval: 2s"),
        expect!["containerLogMonitorInterval: must be at least 3s"],
    );
}

#[test]
fn lc_313_how_images_are_pulled_comes_from_the_file() {
    let limits = |text: &str| {
        let limits = read(&format!("{HEAD}{text}"), "").unwrap().kubelet.pull_limits();
        (limits.at_once, limits.per_second, limits.burst)
    };
    assert_eq!(limits(""), (Some(1), 5, 10));
    assert_eq!(limits("registryPullQPS: 0\nregistryBurst: 3"), (Some(1), 0, 3));
    assert_eq!(limits("serializeImagePulls: false").0, None);
    assert_eq!(limits("serializeImagePulls: false\nmaxParallelImagePulls: 4").0, Some(4));
    assert_eq!(limits("maxParallelImagePulls: 4").0, Some(4), "nobody has to say both");
    assert_eq!(limits("maxParallelImagePulls: 1").0, Some(1));
    for (text, complaint) in [
        ("registryBurst: -1", "registryBurst (--registry-burst) -1 must not be a negative number"),
        ("registryPullQPS: -5", "registryPullQPS (--registry-qps) -5 must not be a negative number"),
        ("maxParallelImagePulls: 0", "maxParallelImagePulls 0 must be a positive number"),
        (
            "maxParallelImagePulls: 2\nserializeImagePulls: true",
            "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) set to \
             false",
        ),
    ] {
        assert_eq!(read(&format!("{HEAD}{text}"), "").unwrap_err().to_string(), complaint);
    }
}

#[test]
fn lc_312_whom_images_are_kept_from_comes_from_the_file() {
    let trust = |text: &str, gates: &str| {
        let settings = read(&format!("{HEAD}{text}"), gates).unwrap();
        settings.kubelet.image_trust(&settings.gates)
    };
    let policy = |name: &str| format!("imagePullCredentialsVerificationPolicy: {name}");
    assert_eq!(trust("", ""), ImageTrust::Preloaded);
    assert_eq!(trust("", "KubeletEnsureSecretPulledImages=false"), ImageTrust::Everything);
    assert_eq!(trust(&policy("NeverVerify"), ""), ImageTrust::Everything);
    assert_eq!(trust(&policy("AlwaysVerify"), ""), ImageTrust::Nothing);
    let listed = format!("{}\npreloadedImagesVerificationAllowlist: [a/*]", policy("NeverVerifyAllowlistedImages"));
    assert_eq!(trust(&listed, ""), ImageTrust::Listed(vec!["a/*".into()]));
    for wrong in [policy("Sometimes"), "preloadedImagesVerificationAllowlist: [a]".into()] {
        let complaint = read(&format!("{HEAD}{wrong}"), "").unwrap_err().to_string();
        assert!(complaint.contains("NeverVerifyAllowlistedImages"), "{complaint}");
    }
}

#[test]
fn lc_342_the_limit_of_processes_comes_from_the_file() {
    let limit = |text: &str| rules(&read(&format!("{HEAD}{text}"), "").unwrap()).machine.pod_pids_limit;
    assert_eq!(limit(""), 4096, "finite: no pod takes them all");
    assert_eq!(limit("podPidsLimit: 100"), 100);
    assert_eq!(limit("podPidsLimit: -1"), -1, "none, as told");
}

/// CVE-2025-46599, CIS 4.2: who asks for a door that we do not have, or for
/// less than we do, is told so.
#[test]
fn doors_that_the_kubelet_has_are_refused_by_name() {
    for line in [
        "readOnlyPort: 10255",
        "authentication: {anonymous: {enabled: true}}",
        "authorization: {mode: AlwaysAllow}",
        "enableProfilingHandler: true",
        "enableContentionProfiling: true",
        "enableDebugFlagsHandler: true",
        "enableSystemLogHandler: true",
        "healthzBindAddress: 0.0.0.0",
        "seccompDefault: false",
        "streamingConnectionIdleTimeout: 0s",
        "tlsMinVersion: VersionTLS10",
        "tlsCipherSuites: [TLS_RSA_WITH_RC4_128_SHA]",
    ] {
        let refused = read(&format!("{HEAD}{line}"), "").unwrap_err().to_string();
        let name = line.split(':').next().unwrap();
        assert!(refused.contains(&format!("field {name:?} is not honoured")), "{refused}");
    }
}

#[test]
fn what_cannot_be_honoured_is_refused_by_name() {
    refused("", expect!["c.yaml: there is no document in it"]);
    refused(
        "kind: Pod",
        expect![[
            r#"c.yaml: apiVersion "", kind "Pod" is no configuration; possible: kubelet.config.k8s.io/v1beta1 KubeletConfiguration, podium/v1alpha1 PodiumConfiguration"#
        ]],
    );
    refused("[1]", expect!["c.yaml: a document is not a mapping"]);
    refused(&format!("{HEAD}---\n{HEAD}"), expect!["c.yaml: there are two documents of kind KubeletConfiguration"]);
    refused(
        &format!("{HEAD}cpuManagerPolicy: static"),
        expect![[
            r#"c.yaml: KubeletConfiguration: field "cpuManagerPolicy" is not honoured by this version of Podium, remove it; honoured: allowedUnsafeSysctls, containerLogMaxFiles, containerLogMaxSize, containerLogMaxWorkers, containerLogMonitorInterval, crashLoopBackOff.maxContainerRestartPeriod, evictionHard, evictionMaxPodGracePeriod, evictionMinimumReclaim, evictionPressureTransitionPeriod, evictionSoft, evictionSoftGracePeriod, featureGates, fileCheckFrequency, httpCheckFrequency, imageGCHighThresholdPercent, imageGCLowThresholdPercent, imageMaximumGCAge, imageMinimumGCAge, imagePullCredentialsVerificationPolicy, kubeReserved, maxParallelImagePulls, maxPods, mergeDefaultEvictionSettings, nodeLeaseDurationSeconds, nodeStatusMaxImages, nodeStatusReportFrequency, nodeStatusUpdateFrequency, oomScoreAdj, podPidsLimit, preloadedImagesVerificationAllowlist, registerWithTaints, registryBurst, registryPullQPS, serializeImagePulls, shutdownGracePeriod, shutdownGracePeriodByPodPriority, shutdownGracePeriodCriticalPods, staticPodPath, staticPodURL, staticPodURLHeader, systemReserved"#
        ]],
    );
    refused(
        &format!("{HEAD}maxPod: 5"),
        expect![[
            r#"c.yaml: KubeletConfiguration: unknown field "maxPod"; possible: allowedUnsafeSysctls, containerLogMaxFiles, containerLogMaxSize, containerLogMaxWorkers, containerLogMonitorInterval, crashLoopBackOff.maxContainerRestartPeriod, evictionHard, evictionMaxPodGracePeriod, evictionMinimumReclaim, evictionPressureTransitionPeriod, evictionSoft, evictionSoftGracePeriod, featureGates, fileCheckFrequency, httpCheckFrequency, imageGCHighThresholdPercent, imageGCLowThresholdPercent, imageMaximumGCAge, imageMinimumGCAge, imagePullCredentialsVerificationPolicy, kubeReserved, maxParallelImagePulls, maxPods, mergeDefaultEvictionSettings, nodeLeaseDurationSeconds, nodeStatusMaxImages, nodeStatusReportFrequency, nodeStatusUpdateFrequency, oomScoreAdj, podPidsLimit, preloadedImagesVerificationAllowlist, registerWithTaints, registryBurst, registryPullQPS, serializeImagePulls, shutdownGracePeriod, shutdownGracePeriodByPodPriority, shutdownGracePeriodCriticalPods, staticPodPath, staticPodURL, staticPodURLHeader, systemReserved"#
        ]],
    );
    refused(
        &format!("{HEAD}maxPods: many"),
        expect![[r#"c.yaml: KubeletConfiguration: maxPods: invalid type: string "many", expected u32"#]],
    );
    refused(
        &format!("{HEAD}maxPods: -1"),
        expect!["c.yaml: KubeletConfiguration: maxPods: invalid value: integer `-1`, expected u32"],
    );
    refused(
        &format!("{HEAD}crashLoopBackOff: {{maxPeriod: 3s}}"),
        expect![[
            r#"c.yaml: KubeletConfiguration: unknown field "crashLoopBackOff.maxPeriod"; possible: allowedUnsafeSysctls, containerLogMaxFiles, containerLogMaxSize, containerLogMaxWorkers, containerLogMonitorInterval, crashLoopBackOff.maxContainerRestartPeriod, evictionHard, evictionMaxPodGracePeriod, evictionMinimumReclaim, evictionPressureTransitionPeriod, evictionSoft, evictionSoftGracePeriod, featureGates, fileCheckFrequency, httpCheckFrequency, imageGCHighThresholdPercent, imageGCLowThresholdPercent, imageMaximumGCAge, imageMinimumGCAge, imagePullCredentialsVerificationPolicy, kubeReserved, maxParallelImagePulls, maxPods, mergeDefaultEvictionSettings, nodeLeaseDurationSeconds, nodeStatusMaxImages, nodeStatusReportFrequency, nodeStatusUpdateFrequency, oomScoreAdj, podPidsLimit, preloadedImagesVerificationAllowlist, registerWithTaints, registryBurst, registryPullQPS, serializeImagePulls, shutdownGracePeriod, shutdownGracePeriodByPodPriority, shutdownGracePeriodCriticalPods, staticPodPath, staticPodURL, staticPodURLHeader, systemReserved"#
        ]],
    );
    refused(
        &format!("{HEAD}crashLoopBackOff: {{maxContainerRestartPeriod: 3}}"),
        expect![
            "c.yaml: KubeletConfiguration: crashLoopBackOff.maxContainerRestartPeriod: invalid type: integer `3`, expected a string"
        ],
    );
    refused(
        &format!("{HEAD}crashLoopBackOff: {{maxContainerRestartPeriod: soon}}"),
        expect![[
            r#"c.yaml: KubeletConfiguration: crashLoopBackOff.maxContainerRestartPeriod: "soon" is not a duration; say 100s or 1m30s"#
        ]],
    );
    refused(
        &format!("{HEAD}crashLoopBackOff: {{maxContainerRestartPeriod: 301s}}"),
        expect!["crashLoopBackOff.maxContainerRestartPeriod: must be between 1s and 300s"],
    );
    refused(&format!("{HEAD}nodeLeaseDurationSeconds: 0"), expect!["nodeLeaseDurationSeconds: must be greater than 0"]);
    refused(
        &format!("{HEAD}featureGates: {{MemoryQoS: perhaps}}"),
        expect![[
            r#"c.yaml: KubeletConfiguration: featureGates.MemoryQoS: invalid type: string "perhaps", expected a boolean"#
        ]],
    );
    refused(&format!("{HEAD}featureGates: {{Nope: true}}"), expect!["feature gates: unrecognized feature gate: Nope"]);
    let podium = "apiVersion: podium/v1alpha1\nkind: PodiumConfiguration\n";
    refused(
        &format!("{podium}port: 6443"),
        expect![[
            r#"c.yaml: PodiumConfiguration: unknown field "port"; possible: auditLogMaxage, auditLogMaxbackup, auditLogMaxsize, auditLogPath, auditPolicyFile, bind, cniBinDirs, cniConfDir, dataDir, encryptionProviderConfig, etcdCafile, etcdCertfile, etcdKeyfile, etcdServers, featureGates, hostPortMin, kubeletBind, log, lostNodeFailDelay, nodeIP, nodeMonitorGracePeriod, nodeName, nodeStartupGracePeriod, podCIDR, quotaBackendBytes, registryConfig, runDir, runtime, stopPods, terminatedPodGCThreshold, writeKubeconfig"#
        ]],
    );
    refused(
        &format!("{podium}bind: here"),
        expect!["c.yaml: PodiumConfiguration: bind: invalid socket address syntax"],
    );
}

#[test]
fn tc_231_thresholds_reservations_and_shutdown_are_read() {
    let text = format!(
        "{HEAD}evictionHard: {{memory.available: 200Mi, nodefs.available: 5%, imagefs.available: 0%}}\n\
         evictionSoft: {{memory.available: 1Gi}}\nevictionSoftGracePeriod: {{memory.available: 1m}}\n\
         evictionMinimumReclaim: {{nodefs.available: 1Gi}}\nkubeReserved: {{cpu: 100m, memory: 100Mi}}\n\
         systemReserved: {{cpu: 50m}}\nshutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n"
    );
    let settings = read(&text, "").unwrap();
    let house = settings.kubelet.settings(&settings.gates).unwrap();
    let thresholds: Vec<_> = house.thresholds.iter().map(|it| (it.signal.to_string(), it.grace)).collect();
    let soft = Some(Duration::from_secs(60));
    let expected = [("memory.available", None), ("nodefs.available", None), ("memory.available", soft)];
    assert_eq!(thresholds, expected.map(|(signal, grace)| (signal.to_owned(), grace)), "0% switches one off");
    assert_eq!(house.thresholds[1].reclaim.of(0), 1 << 30);
    let periods: Vec<_> = house.shutdown_groups.iter().map(|group| group.period.as_secs()).collect();
    assert_eq!(periods, [20, 10]);
    let capacity =
        kubelet::Capacity { cpu_milli: 2000, memory_bytes: 1 << 30, ephemeral_storage_bytes: 1000, pods: 110 };
    let left = settings.kubelet.allocatable(&capacity).unwrap();
    assert_eq!((left.cpu_milli, left.memory_bytes), (1850, (1 << 30) - (300 << 20)));
    assert_eq!((left.ephemeral_storage_bytes, left.pods), (950, 110));
}

#[test]
fn thresholds_that_make_no_sense_are_named() {
    for (text, expected) in [
        ("evictionHard: {memory: 1Gi}", "evictionHard: \"memory\" is not a signal; possible: memory.available"),
        ("evictionHard: {memory.available: much}", "evictionHard: memory.available: \"much\" is no amount"),
        ("evictionSoft: {memory.available: 1Gi}", "evictionSoftGracePeriod: memory.available needs one"),
        ("shutdownGracePeriodCriticalPods: 1s", "shutdownGracePeriodCriticalPods: must not be longer"),
        ("kubeReserved: {gpu: \"1\"}", "\"gpu\" cannot be reserved"),
        ("imageGCHighThresholdPercent: 50", "imageGCLowThresholdPercent: must be below"),
    ] {
        let error = read(&format!("{HEAD}{text}\n"), "").unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn lc_353_lc_333_where_else_static_pods_come_from_and_the_agents_oom_score() {
    let kubelet = |fields: &str| read(&format!("{HEAD}{fields}\n"), "");
    let read = kubelet(
        "staticPodURL: https://pods.example:8443/n1?v=1\nstaticPodURLHeader: {X-Token: [a, b]}\n\
         httpCheckFrequency: 5s\nfileCheckFrequency: 0s\noomScoreAdj: -500",
    );
    let read = read.unwrap().kubelet;
    let headers = [("X-Token".to_owned(), "a".to_owned()), ("X-Token".to_owned(), "b".to_owned())];
    let url = kubelet::StaticUrl::new("https://pods.example:8443/n1?v=1".to_owned(), headers.to_vec()).unwrap();
    assert!(!format!("{url:?}").contains("X-Token"), "what may be secret is not printed");
    assert_eq!(read.static_url().unwrap(), Some(url));
    assert_eq!((read.periods().http_check.as_secs(), read.periods().file_check.as_secs()), (5, 20));
    assert_eq!(read.oom_score_adj(), -500);
    let none = kubelet("").unwrap().kubelet;
    assert_eq!((none.static_url().unwrap(), none.oom_score_adj()), (None, -999));
    for (fields, problem) in [
        ("staticPodURL: pods.example/n1", "staticPodURL: say https://host/path"),
        ("staticPodURL: ftp://pods.example", "staticPodURL: unsupported protocol scheme"),
        ("oomScoreAdj: -1001", "oomScoreAdj: must be between -1000 and 1000"),
    ] {
        let error = format!("{:#}", kubelet(fields).unwrap_err());
        assert!(error.contains(problem), "{error}");
    }
}

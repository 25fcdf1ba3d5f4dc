//! What unit tests of several modules share.

use std::path::Path;

use crate::{Capacity, Config, Machine, Periods};

pub(crate) fn config(root: &Path) -> Config {
    Config {
        node_name: "n1".into(),
        host_ips: vec!["192.0.2.1".parse().unwrap()],
        internal_ips: vec!["192.0.2.1".parse().unwrap()],
        port: 10250,
        root: root.join("kubelet"),
        log_root: root.join("logs"),
        labels: Default::default(),
        capacity: Capacity { cpu_milli: 2000, memory_bytes: 8 << 30, ephemeral_storage_bytes: 1 << 40, pods: 110 },
        allocatable: Capacity { cpu_milli: 2000, memory_bytes: 8 << 30, ephemeral_storage_bytes: 1 << 40, pods: 110 },
        taints: Vec::new(),
        machine: Machine::default(),
        version: "v1.35.0+podium".into(),
        dns: cri::DnsConfig::default(),
        periods: Periods::default(),
        log_limits: cri::LogLimits::default(),
        log_workers: 1,
        rules: lifecycle::Rules::upstream(Vec::new()),
        settings: lifecycle::node::Settings::upstream(),
        static_pods: None,
        static_url: None,
        gates: objects::gates::Gates::default(),
        remove_unknown_pods: false,
        status_images_max: Some(50),
        pulls: crate::PullLimits::default(),
        image_trust: crate::ImageTrust::Preloaded,
    }
}

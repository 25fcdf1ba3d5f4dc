//! What CRI asks for again and again, kept where the runtime keeps it for us:
//! in annotations, which are taken out before anyone sees them. Pure.

use cri::CriError;
use prost::Message;

use crate::v1;

/// The configuration a sandbox was run with; CRI wants it with every container.
const SANDBOX: &str = "podium.dev/sandbox-config";
/// Whether a container has a terminal; CRI wants it with every attach.
const TERMINAL: &str = "podium.dev/tty";

pub(super) fn keep(config: &mut v1::PodSandboxConfig) -> Result<(), CriError> {
    // Labels and annotations come back by themselves.
    let bare = v1::PodSandboxConfig { labels: Default::default(), annotations: Default::default(), ..config.clone() };
    config.annotations.insert(SANDBOX.to_owned(), hex(&bare.encode_to_vec()));
    Ok(())
}

pub(super) fn recall(mut status: v1::PodSandboxStatus) -> Result<v1::PodSandboxConfig, CriError> {
    let kept = status.annotations.remove(SANDBOX).and_then(|text| unhex(&text));
    let config = kept.and_then(|bytes| v1::PodSandboxConfig::decode(bytes.as_slice()).ok());
    let foreign = || CriError::Invalid(format!("sandbox {:?} was not made by this agent", status.id));
    let mut config = config.ok_or_else(foreign)?;
    config.labels = status.labels;
    config.annotations = status.annotations;
    Ok(config)
}

pub(super) fn hide(annotations: &mut std::collections::BTreeMap<String, String>) {
    annotations.remove(SANDBOX);
    annotations.remove(TERMINAL);
}

pub(super) fn keep_terminal(config: &mut v1::ContainerConfig) {
    if config.tty {
        config.annotations.insert(TERMINAL.to_owned(), "true".to_owned());
    }
}

pub(super) fn has_terminal(status: &v1::ContainerStatus) -> bool {
    status.annotations.contains_key(TERMINAL)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_agent_knows_the_sandbox() {
        let map = |key: &str| std::collections::BTreeMap::from([(key.to_owned(), "1".to_owned())]);
        let config = v1::PodSandboxConfig {
            hostname: "web".into(),
            log_directory: "/logs/ü".into(),
            labels: map("l"),
            annotations: map("a"),
            ..Default::default()
        };
        let mut sent = config.clone();
        keep(&mut sent).unwrap();
        let status = v1::PodSandboxStatus { labels: sent.labels, annotations: sent.annotations, ..Default::default() };
        assert_eq!(recall(status.clone()).unwrap(), config);
        let mut shown = status.annotations;
        hide(&mut shown);
        assert_eq!(shown, map("a"));
        assert!(matches!(recall(v1::PodSandboxStatus::default()), Err(CriError::Invalid(_))));
    }
}

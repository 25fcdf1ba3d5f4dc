//! The audit log, as the flags want it: on unless it is switched off.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ambient::Timestamp;
use anyhow::{Context as _, Result, anyhow};
use apiserver::{Audit, AuditLog, AuditPolicy, Rotation};

use crate::cli::ControlArgs;
use crate::files;

const DAY: Duration = Duration::from_hours(24);

/// `usual` is the file where none is named.
pub(crate) fn open(args: &ControlArgs, usual: &Path, now: Timestamp) -> Result<Option<Arc<Audit>>> {
    let policy = args.audit_policy_file.as_deref().map(policy).transpose()?;
    let log = match args.audit_log_path.as_deref() {
        Some("" | "none") => return Ok(None),
        Some("-") => AuditLog::output(),
        Some(path) => {
            let log = AuditLog::open(Path::new(path), rotation(args), now);
            log.with_context(|| format!("--audit-log-path {path}"))?
        }
        None => {
            let log = AuditLog::open(usual, rotation(args), now);
            log.with_context(|| format!("the audit log {}", usual.display()))?
        }
    };
    Ok(Some(Arc::new(Audit::new(policy.unwrap_or_default(), log))))
}

fn policy(path: &Path) -> Result<AuditPolicy> {
    AuditPolicy::parse(&files::text(path)?).map_err(|error| anyhow!("--audit-policy-file {}: {error}", path.display()))
}

fn rotation(args: &ControlArgs) -> Rotation {
    let usual = Rotation::default();
    let age_max = args.audit_log_maxage.map(|days| Some(DAY.saturating_mul(u32::try_from(days).unwrap_or(u32::MAX))));
    Rotation {
        bytes_max: args.audit_log_maxsize.map_or(usual.bytes_max, |megabytes| megabytes.saturating_mul(1 << 20)),
        older_max: args.audit_log_maxbackup.unwrap_or(usual.older_max),
        age_max: age_max.unwrap_or(usual.age_max).filter(|age| !age.is_zero()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: ControlArgs,
    }

    fn opened(dir: &Path, flags: &[&str]) -> Result<Option<Arc<Audit>>> {
        let line = Line::try_parse_from(["podium"].iter().chain(flags)).unwrap();
        open(&line.args, &dir.join("audit/audit.log"), ambient::Clock::manual().now().wall)
    }

    #[test]
    fn it_is_on_unless_it_is_switched_off() {
        let dir = tempfile::tempdir().unwrap();
        for off in ["--audit-log-path=", "--audit-log-path=none"] {
            assert!(opened(dir.path(), &[off]).unwrap().is_none());
        }
        assert!(opened(dir.path(), &["--audit-log-path", "-"]).unwrap().is_some());
        assert!(!dir.path().join("audit").exists());
        assert!(opened(dir.path(), &[]).unwrap().is_some());
        assert!(dir.path().join("audit/audit.log").exists());
    }

    #[test]
    fn a_wrong_policy_is_named_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.yaml");
        std::fs::write(&file, "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Some}]}").unwrap();
        let error = opened(dir.path(), &["--audit-policy-file", file.to_str().unwrap()]).unwrap_err().to_string();
        assert!(error.starts_with("--audit-policy-file ") && error.contains("rules[0].level"), "{error}");
    }
}

//! What can be said about the control plane.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{ConfigArgs, PlaceArgs};
use crate::config::PodiumConfiguration;

pub(super) const EXAMPLES: &str = "\
Examples:
  podium server --data-dir ./cluster --bind 127.0.0.1:6443
  kubectl --kubeconfig ./cluster/admin.kubeconfig get namespaces
  podium server --disable scheduler,controllers       for those of somebody else
  podium server --etcd-servers http://127.0.0.1:2379  objects in etcd";

#[derive(Debug, Args)]
pub(crate) struct Server {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    /// What not to run here, because somebody else does it
    #[arg(long, value_name = "PARTS", value_enum, value_delimiter = ',')]
    pub(crate) disable: Vec<Part>,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// What works beside the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    Scheduler,
    Controllers,
}

/// What makes a control plane: the same for `podium up` and `podium server`.
#[derive(Debug, Args)]
pub(crate) struct ControlArgs {
    /// Where the API server listens [default: 127.0.0.1:6443]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) bind: Option<SocketAddr>,
    /// Also write or merge the kubeconfig into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) write_kubeconfig: Option<PathBuf>,
    /// Write to this file who asked for what, one JSON object a line; `-` is standard output, nothing
    /// (`--audit-log-path=`) switches it off [default: audit/audit.log below the data directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_log_path: Option<String>,
    /// What of it to write, an audit.k8s.io/v1 Policy [default: who writes, or touches secrets, tokens,
    /// certificates or the inside of containers]
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_policy_file: Option<PathBuf>,
    /// Remove older audit logs after so many days; 0: never [default: 30]
    #[arg(long, value_name = "DAYS")]
    pub(crate) audit_log_maxage: Option<u64>,
    /// Begin a new audit log at so many megabytes [default: 100]
    #[arg(long, value_name = "MEGABYTES")]
    pub(crate) audit_log_maxsize: Option<u64>,
    /// How many older audit logs to keep [default: 10]
    #[arg(long, value_name = "COUNT")]
    pub(crate) audit_log_maxbackup: Option<usize>,
    /// What is encrypted at rest and how: an EncryptionConfiguration of apiserver.config.k8s.io/v1
    /// [default: Secrets, with a key made at the first start; nothing in an etcd]
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_provider_config: Option<PathBuf>,
    /// What the objects in the file may take together, in bytes; a twentieth of it is kept for the system
    /// [default: 2147483648]
    #[arg(long, value_name = "BYTES")]
    pub(crate) quota_backend_bytes: Option<u64>,
    #[command(flatten)]
    pub(crate) etcd: EtcdArgs,
}

/// Where objects are kept, if not in a file below the data directory.
#[derive(Debug, Args)]
pub(crate) struct EtcdArgs {
    /// Keep all objects in this etcd instead of a file below the data directory
    #[arg(long = "etcd-servers", value_name = "URL", value_delimiter = ',')]
    pub(crate) servers: Vec<String>,
    /// Whose certificates etcd's servers have
    #[arg(long = "etcd-cafile", value_name = "FILE", requires = "servers")]
    pub(crate) cafile: Option<PathBuf>,
    /// What to show etcd's servers
    #[arg(long = "etcd-certfile", value_name = "FILE", requires = "keyfile")]
    pub(crate) certfile: Option<PathBuf>,
    #[arg(long = "etcd-keyfile", value_name = "FILE", requires = "certfile")]
    pub(crate) keyfile: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretsVerb {
    /// Make a new key; the next start of Podium writes every Secret anew with it
    ///
    /// Older keys stay in DATA-DIR/pki/encryption.yaml, for backups of the
    /// store. Remove them by hand when no backup needs them. Who brings keys
    /// with --encryption-provider-config adds the new one there, first of all.
    Rotate(PlaceArgs),
}

impl ControlArgs {
    pub(super) fn fill(&mut self, file: &PodiumConfiguration) {
        self.bind = self.bind.or(file.bind);
        self.write_kubeconfig = self.write_kubeconfig.take().or(file.write_kubeconfig.clone());
        self.audit_log_path = self.audit_log_path.take().or(file.audit_log_path.clone());
        self.audit_policy_file = self.audit_policy_file.take().or(file.audit_policy_file.clone());
        self.audit_log_maxage = self.audit_log_maxage.or(file.audit_log_maxage);
        self.audit_log_maxsize = self.audit_log_maxsize.or(file.audit_log_maxsize);
        self.audit_log_maxbackup = self.audit_log_maxbackup.or(file.audit_log_maxbackup);
        self.quota_backend_bytes = self.quota_backend_bytes.or(file.quota_backend_bytes);
        let encryption = &mut self.encryption_provider_config;
        *encryption = encryption.take().or(file.encryption_provider_config.clone());
        if self.etcd.servers.is_empty() {
            self.etcd.servers.clone_from(&file.etcd_servers);
        }
        self.etcd.cafile = self.etcd.cafile.take().or(file.etcd_cafile.clone());
        self.etcd.certfile = self.etcd.certfile.take().or(file.etcd_certfile.clone());
        self.etcd.keyfile = self.etcd.keyfile.take().or(file.etcd_keyfile.clone());
    }
}

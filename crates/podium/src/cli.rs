//! What can be said on the command line, and which file answers it.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage (clap's own).

mod control;
mod run;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use engine::network::CniConfig;

pub(crate) use control::{ControlArgs, EtcdArgs, Part, SecretsVerb, Server};
pub(crate) use run::run;

use crate::config::{PodiumConfiguration, Settings, parse_thresholds};
use crate::containers::Choice;
use crate::instance::Places;
use crate::node::{self, Taints};

/// The Kubernetes Pod lifecycle, in one binary.
///
/// Start everything with `podium up`, then use kubectl as usual.
#[derive(Debug, Parser)]
#[command(name = "podium", version = VERSION, propagate_version = true, disable_help_subcommand = true)]
struct Cli {
    /// What to log, e.g. `info`, `debug` or `kubelet=debug,info` [default: warn]
    #[arg(long, global = true, env = "PODIUM_LOG", value_name = "FILTER")]
    log: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

/// The Kubernetes release whose behaviour and wire format this build follows.
pub(crate) const KUBERNETES_VERSION: &str = apiserver::VERSION;
const VERSION: &str = env!("CARGO_PKG_VERSION");
const SIMULATE_EXAMPLES: &str = "\
Examples:
  podium simulate -f pod.yaml                       what happens if nothing goes wrong
  podium simulate -f pod.yaml -s crash.yaml         … and if crash.yaml happens:

      - at 5s: exit app 1                           one thing an entry, in words
      - at 20s: oom app
      - probe fails app liveness                    from the beginning
      - hook takes 20s app preStop
      - process app ignores TERM                    TERM is the stop signal, whatever its name
      - at 1m: delete grace=10

  podium simulate -f pod.yaml -s crash.yaml -o json | jq 'select(.name == \"SendSignal\")'
  podium simulate -f pod.yaml -s crash.yaml > expected.txt
  podium simulate -f pod.yaml -s crash.yaml --expect expected.txt     in CI: 1 and a diff if it changed
  podium simulate -f pod.yaml --feature-gates ContainerStopSignals=true

Exit codes: 0 done, 1 refused or different, 2 wrong usage.";
const AGENT_EXAMPLES: &str = "\
Examples:
  podium agent --kubeconfig node.kubeconfig
  podium agent --kubeconfig node.kubeconfig --runtime unix:///run/containerd/containerd.sock

`kubectl logs` and the like reach this node over TLS at --kubelet-bind.";
const CRI_EXAMPLES: &str = "\
Examples:
  podium cri serve                                    on unix:///run/podium/cri.sock
  podium cri serve --data-dir /srv/cri --listen unix:///run/podium-cri.sock
  podium cri serve --cni-conf-dir /etc/cni/net.d      pods connected by CNI plugins

  crictl --runtime-endpoint unix:///run/podium/cri.sock info
  podium image import busybox.tar                     images without a registry; same --data-dir
  kubelet --container-runtime-endpoint=unix:///run/podium/cri.sock --cgroup-driver=cgroupfs …

Exit codes: 0 stopped by a signal, 1 failed, 2 wrong usage.";
/// Where most put them, and where Debian does.
const CNI_BIN_DIRS: [&str; 2] = ["/opt/cni/bin", "/usr/lib/cni"];
/// What is logged when nobody says.
const LOG: &str = "warn";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run everything in this process: API server, store, scheduler, node agent, containers
    ///
    /// Stays in the foreground. Ctrl-C or SIGTERM stops Podium and leaves the
    /// pods running; the next `podium up` finds them again. `podium down`
    /// stops the pods too.
    Up(Up),
    /// Run the control plane alone: API server, store, scheduler, controllers
    ///
    /// Needs no root. Stays in the foreground; Ctrl-C or SIGTERM stops it.
    /// Nodes join with `podium agent` or any kubelet.
    #[command(after_long_help = control::EXAMPLES)]
    Server(Server),
    /// Run the node agent alone, under the API server of a kubeconfig
    ///
    /// That may be another Podium or any Kubernetes. The kubeconfig's user is
    /// the node, `system:node:NAME` of the group `system:nodes`. Stays in the
    /// foreground; Ctrl-C or SIGTERM leaves the pods running.
    #[command(after_long_help = AGENT_EXAMPLES)]
    Agent(Agent),
    /// Stop Podium and its pods, and remove what they used on this machine
    ///
    /// Objects, images and logs stay in the data directory: `podium up` starts
    /// the same pods again.
    Down(Down),
    /// Tell whether the API server answers and the node is ready
    Status(Status),
    /// How Secrets are encrypted at rest
    #[command(subcommand)]
    Secrets(SecretsVerb),
    /// What concerns this node as a whole
    #[command(subcommand)]
    Node(NodeVerb),
    /// Print the administrator's kubeconfig
    Kubeconfig(PlaceArgs),
    /// Images of the embedded runtime
    #[command(subcommand)]
    Image(Image),
    /// The embedded runtime for other programs
    #[command(subcommand)]
    Cri(Cri),
    /// Play the life of a pod in virtual time and print what happens
    ///
    /// Needs no cluster, no root and no time: the very code that decides on a
    /// node decides here. What the script does not say goes well. See
    /// docs/simulate.md for all that a script can say.
    #[command(after_long_help = SIMULATE_EXAMPLES)]
    Simulate(Simulate),
    /// Print the version
    Version {
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}

/// Where an instance lives. The same pair of flags names it in every verb.
#[derive(Debug, Clone, Args)]
pub(crate) struct PlaceArgs {
    /// Objects, images, keys and logs [default: /var/lib/podium]
    #[arg(long, env = "PODIUM_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Sockets of running pods [default: /run/podium, or DIR/run with --data-dir]
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    /// Stop the pods as well when Podium stops
    #[arg(long)]
    pub(crate) stop_pods: bool,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Agent {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Whose API server to work for, and as whom
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// What the node agent's server presents [default: a certificate it signs itself]
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub(crate) tls_cert_file: Option<PathBuf>,
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub(crate) tls_private_key_file: Option<PathBuf>,
    /// Whose clients it admits [default: the authority named in the kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// What makes a node: the same for `podium up` and `podium agent`.
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// Where the node agent serves logs to the API server [default: a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) kubelet_bind: Option<SocketAddr>,
    /// Name of this node [default: the host name]
    #[arg(long)]
    pub(crate) node_name: Option<String>,
    /// Address of this node that pods are told [default: the one this machine goes out with]
    ///
    /// Nothing listens there that does not anyway.
    #[arg(long, value_name = "ADDR")]
    pub(crate) node_ip: Option<IpAddr>,
    /// The lowest hostPort that pods may have [default: net.ipv4.ip_unprivileged_port_start, mostly 1024]
    #[arg(long, value_name = "PORT")]
    pub(crate) host_port_min: Option<u16>,
    /// Addresses for pods, fixed at the first start [default: a free /24 of 10.128.0.0/9]
    #[arg(long, value_name = "CIDR")]
    pub(crate) pod_cidr: Option<String>,
    /// Remove pods that run here although the API belongs to another cluster or lost its objects
    ///
    /// Without it such a start is refused, and the pods run on.
    #[arg(long)]
    pub(crate) remove_unknown_pods: bool,
    #[command(flatten)]
    pub(crate) cni: CniArgs,
    /// Who runs the containers: `embedded`, or the CRI socket of another runtime
    ///
    /// As with any kubelet the whole socket is ours: pods in it that the API
    /// server does not know are removed.
    #[arg(long, value_name = "embedded|unix:///PATH")]
    runtime: Option<Choice>,
    #[command(flatten)]
    pub(crate) kubelet: KubeletArgs,
    #[command(flatten)]
    pub(crate) registries: RegistryArgs,
}

impl NodeArgs {
    pub(crate) fn runtime(&self) -> Choice {
        self.runtime.clone().unwrap_or_default()
    }
}

/// How pods are connected, if not by Podium's own bridge.
#[derive(Debug, Clone, Args)]
pub(crate) struct CniArgs {
    /// Connect pods by CNI plugins: the first network configured in this directory
    ///
    /// Instead of Podium's own bridge. Pods that run stay connected as they are.
    #[arg(long, value_name = "DIR")]
    cni_conf_dir: Option<PathBuf>,
    /// Where CNI plugins are; may be given more than once [default: /opt/cni/bin and /usr/lib/cni]
    #[arg(long, value_name = "DIR")]
    cni_bin_dir: Vec<PathBuf>,
}

impl CniArgs {
    pub(crate) fn config(&self) -> Option<CniConfig> {
        let bin_dirs = match self.cni_bin_dir.as_slice() {
            [] => CNI_BIN_DIRS.map(PathBuf::from).to_vec(),
            given => given.to_vec(),
        };
        self.cni_conf_dir.clone().map(|conf_dir| CniConfig { conf_dir, bin_dirs })
    }
}

/// Named as the flags of upstream's kubelet.
#[derive(Debug, Clone, Args)]
pub(crate) struct KubeletArgs {
    /// When to evict pods, e.g. `memory.available<100Mi,nodefs.available<10%`; what is not named has no threshold
    #[arg(long, value_name = "THRESHOLDS", value_parser = parse_thresholds)]
    eviction_hard: Option<BTreeMap<String, String>>,
    /// Labels for the Node, e.g. `disk=ssd,zone=a`
    #[arg(long, value_name = "LABELS", value_parser = node::parse_labels)]
    node_labels: Option<BTreeMap<String, String>>,
    /// Run the pods whose manifests are in this directory, with or without the API server
    #[arg(long, value_name = "DIR")]
    pod_manifest_path: Option<PathBuf>,
    /// Taints for a Node that is registered anew, e.g. `dedicated=db:NoSchedule`
    #[arg(long, value_name = "TAINTS", value_parser = node::parse_taints)]
    register_with_taints: Option<Taints>,
}

impl KubeletArgs {
    /// A flag wins over the file.
    fn overrule(&self, settings: &mut Settings) -> anyhow::Result<()> {
        let file = &mut settings.kubelet;
        if let Some(thresholds) = &self.eviction_hard {
            file.eviction_hard.clone_from(thresholds);
        }
        if let Some(path) = &self.pod_manifest_path {
            file.static_pod_path = Some(path.clone());
        }
        if let Some(Taints(taints)) = &self.register_with_taints {
            file.register_with_taints.clone_from(taints);
        }
        settings.node_labels = self.node_labels.clone().unwrap_or_default();
        settings.check()
    }
}

/// The same in every verb that decides about pods.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigArgs {
    /// YAML with a KubeletConfiguration, a PodiumConfiguration or both; flags win over it
    ///
    /// docs/configuration.md lists the fields that are honoured; others are an error.
    #[arg(long = "config", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Features to switch on or off, e.g. `ContainerStopSignals=true,ContainerRestartRules=false`
    ///
    /// Names and defaults are those of Kubernetes v1.35, see
    /// docs/configuration.md. To restart all containers of a pod in place:
    /// `NodeDeclaredFeatures=true,RestartAllContainersOnContainerExits=true`.
    #[arg(long, value_name = "GATES", default_value = "", hide_default_value = true)]
    feature_gates: String,
}

impl ConfigArgs {
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        Settings::read(self.file.as_deref(), &self.feature_gates)
    }
}

impl Up {
    /// What the file says where no flag does.
    fn fill(&mut self, file: PodiumConfiguration) {
        self.stop_pods |= file.stop_pods;
        self.place.fill(&file);
        self.control.fill(&file);
        self.node.fill(file);
    }
}

impl PlaceArgs {
    fn fill(&mut self, file: &PodiumConfiguration) {
        self.data_dir = self.data_dir.take().or(file.data_dir.clone());
        self.run_dir = self.run_dir.take().or(file.run_dir.clone());
    }
}

impl NodeArgs {
    fn fill(&mut self, file: PodiumConfiguration) {
        self.kubelet_bind = self.kubelet_bind.or(file.kubelet_bind);
        self.node_name = self.node_name.take().or(file.node_name);
        self.node_ip = self.node_ip.or(file.node_ip);
        self.host_port_min = self.host_port_min.or(file.host_port_min);
        self.pod_cidr = self.pod_cidr.take().or(file.pod_cidr);
        self.cni.cni_conf_dir = self.cni.cni_conf_dir.take().or(file.cni_conf_dir);
        if self.cni.cni_bin_dir.is_empty() {
            self.cni.cni_bin_dir = file.cni_bin_dirs;
        }
        self.runtime = self.runtime.take().or(file.runtime);
        let registries = &mut self.registries.registry_config;
        *registries = registries.take().or(file.registry_config);
    }
}

/// How image registries are reached.
#[derive(Debug, Clone, Args)]
pub(crate) struct RegistryArgs {
    /// Mirrors, authorities and the like: a directory of REGISTRY/hosts.toml, as containerd's certs.d
    /// [default: /etc/podium/certs.d]
    #[arg(long, env = "PODIUM_REGISTRY_CONFIG", value_name = "DIR")]
    pub(crate) registry_config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Down {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Also delete the data directory: objects, images, keys and logs
    #[arg(long)]
    pub(crate) delete_data: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Ask the API server of this kubeconfig instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["data_dir", "run_dir"])]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Wait until the node is ready
    #[arg(long)]
    pub(crate) wait: bool,
    /// How long to wait, e.g. 60s or 2m
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeVerb {
    /// Stop the pods of this node in order, as before the machine stops, and wait for it
    ///
    /// Needs shutdownGracePeriod or shutdownGracePeriodByPodPriority in a
    /// KubeletConfiguration. Where systemd stops the machine, call this from a
    /// unit that is ordered before it. The same by hand: SIGUSR1 to `podium
    /// up`, SIGUSR2 to call it off.
    Shutdown(Shutdown),
}

#[derive(Debug, Args)]
pub(crate) struct Shutdown {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Call it off: the node takes pods again; those that stopped stay so
    #[arg(long)]
    pub(crate) cancel: bool,
    /// How long to wait until every pod has stopped, e.g. 60s or 2m
    #[arg(long, default_value = "5m", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Simulate {
    /// Manifest with a Pod or a List, YAML or JSON (`-` reads standard input)
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// What happens to the pod, e.g. `- at 5s: exit app 1`
    #[arg(short, long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// For people, or one JSON object a line for tools
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// Print nothing if the transcript is the one in FILE; else the difference, and fail
    #[arg(long, value_name = "FILE")]
    pub(crate) expect: Option<PathBuf>,
    /// Where the story ends, if things still happen then
    #[arg(long, default_value = "1h", value_parser = parse_duration)]
    pub(crate) until: Duration,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Image {
    /// Fetch an image from its registry
    ///
    /// Layers that are here already are not fetched again, and a download that
    /// broke off is resumed. Credentials are read from standard input or from
    /// the variable PODIUM_REGISTRY_CREDS, as user:password; never from an
    /// argument, which others could see.
    Pull {
        /// e.g. nginx:1.27, registry.example/team/app@sha256:…
        image: String,
        /// Read user:password from standard input
        #[arg(long)]
        creds_stdin: bool,
        /// Speak HTTP without TLS (registries on this machine are reached so by default)
        #[arg(long)]
        plain_http: bool,
        #[command(flatten)]
        registries: RegistryArgs,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Remove images no container uses, when the disk is nearly full
    ///
    /// Those not used for longest go first. What broken pulls left goes in any case.
    Gc {
        /// Do nothing while less of the disk is used
        #[arg(long, default_value_t = 85, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
        high: u8,
        /// Stop when no more of the disk is used
        #[arg(long, default_value_t = 80, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
        low: u8,
        /// Keep images younger than this
        #[arg(long, default_value = "2m", value_parser = parse_duration, value_name = "DURATION")]
        min_age: Duration,
        /// Remove every image no container uses, however young and however much room there is
        #[arg(long, conflicts_with_all = ["high", "low", "min_age"])]
        all: bool,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Add the images of a docker-archive or OCI layout tar file (`-` reads standard input)
    Import {
        file: PathBuf,
        /// Name the image instead of using the names in the archive
        #[arg(long)]
        tag: Option<String>,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// List images
    Ls {
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Remove an image by name or id
    Rm {
        image: String,
        #[command(flatten)]
        place: PlaceArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Cri {
    /// Serve the embedded runtime on a CRI v1 socket, for crictl or a kubelet
    ///
    /// Stays in the foreground. Ctrl-C or SIGTERM stops the server and leaves
    /// the pods running; the next one finds them again. `podium down` stops
    /// the pods too. Only root can connect.
    #[command(after_long_help = CRI_EXAMPLES)]
    Serve(CriServe),
}

#[derive(Debug, Args)]
pub(crate) struct CriServe {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) registries: RegistryArgs,
    /// Where to listen [default: cri.sock in the run directory]
    #[arg(long, value_name = "unix:///PATH")]
    pub(crate) listen: Option<String>,
    /// Addresses for pods, fixed at the first start [default: a free /24 of 10.128.0.0/9]
    #[arg(long, value_name = "CIDR")]
    pub(crate) pod_cidr: Option<String>,
    #[command(flatten)]
    pub(crate) cni: CniArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}

impl PlaceArgs {
    pub(crate) fn places(&self) -> Places {
        Places::new(self.data_dir.clone(), self.run_dir.clone())
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    objects::duration::parse_positive(text).map_err(|problem| format!("{problem}; say 60s or 2m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_read_as_people_write_them() {
        assert_eq!(parse_duration("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert!(parse_duration("soon").is_err());
    }
}

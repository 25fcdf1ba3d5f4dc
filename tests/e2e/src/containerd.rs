//! Debian's containerd as it comes, with directories, socket and bridge of its
//! own, in mount and PID namespaces that take all of it with them.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::process::{Patience, run};

/// What holds a pod there.
pub const PAUSE: &str = "podium.test/pause:1";
const CNI_PLUGINS: &str = "/usr/lib/cni";

pub struct Containerd {
    /// The one that made the namespaces; they end with it.
    child: Child,
    dir: PathBuf,
    bridge: String,
}

/// Writes `config.toml` and a network for a containerd that keeps to `dir`.
pub fn configure(dir: &Path, bridge: &str, subnet: &str) {
    assert!(Path::new(CNI_PLUGINS).join("bridge").exists(), "install containernetworking-plugins");
    let shown = dir.display();
    let config = format!(
        r#"
version = 2
root = "{shown}/root"
state = "{shown}/state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
address = "{shown}/c.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "{shown}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
stream_server_address = "127.0.0.1"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_PLUGINS}"
conf_dir = "{shown}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"#
    );
    let network = format!(
        r#"{{"cniVersion": "0.4.0", "name": "{bridge}", "plugins": [{{"type": "bridge", "bridge": "{bridge}",
            "isGateway": true, "ipMasq": false,
            "ipam": {{"type": "host-local", "ranges": [[{{"subnet": "{subnet}"}}]]}}}}]}}"#
    );
    fs::create_dir_all(dir.join("cni")).expect("the directory is ours");
    fs::write(dir.join("cni/10-test.conflist"), network).expect("the directory is ours");
    fs::write(dir.join("config.toml"), config).expect("the directory is ours");
}

impl Containerd {
    /// `bridge` names an interface that nobody else has.
    #[track_caller]
    pub fn start(dir: PathBuf, bridge: &str, subnet: &str) -> Self {
        configure(&dir, bridge, subnet);
        let mut command = Command::new("unshare");
        // Mounts of the agent are seen there, not the other way round.
        command.args(["--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["sh", "-c", START, "sh"]).arg(dir.join("config.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("unshare is installed");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
        let is_up = lines.by_ref().any(|line| line.contains("successfully booted"));
        assert!(is_up, "containerd ended before it was up");
        let mut log = fs::File::create(dir.join("containerd.log")).expect("the directory is ours");
        thread::spawn(move || lines.try_for_each(|line| writeln!(log, "{line}")));
        Self { child, dir, bridge: bridge.to_owned() }
    }

    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    #[track_caller]
    pub fn import(&self, archive: &Path) {
        let mut command = Command::new("ctr");
        command.arg("-a").arg(self.socket()).args(["-n", "k8s.io", "images", "import"]).arg(archive);
        run(&command, "", Patience::LONG).ok();
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("c.sock")
    }
}

/// It, its shims and the plugins use these places whatever they are told.
const START: &str = r#"
for place in /run /var/lib/cni; do mkdir -p "$place" && mount -t tmpfs tmpfs "$place" || exit 1; done
exec containerd --config "$1"
"#;

impl Drop for Containerd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = Command::new("ip").args(["link", "delete", &self.bridge]).stderr(Stdio::null()).status();
    }
}

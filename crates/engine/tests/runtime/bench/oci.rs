//! The same by an OCI runtime's command line, as containerd's shim calls it.
//!
//! Each container joins namespaces that are there already, as it does in a
//! pod. The root file system is used as it lies on the disk: what mounts it
//! (an overlay) is not the work of an OCI runtime, so it is no part of these
//! figures while it is part of the engine's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use oci_spec::runtime::{LinuxNamespaceType, Spec};
use tempfile::TempDir;

use super::{CROWD, ROUNDS, SLEEP, Times, millis, tell};
use crate::world;

pub(super) fn runc() {
    measure("runc");
}

pub(super) fn crun() {
    measure("crun");
}

fn measure(name: &'static str) {
    let Some(exe) = find(name) else { return println!("{name}: not installed, not measured") };
    let peer = Peer::new(name, exe);
    if let Err(why) = peer.try_one() {
        return println!("{name}: not measured, it cannot run containers here: {why}");
    }
    peer.one_by_one();
    peer.all_at_once();
}

fn find(name: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"]
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.exists())
}

struct Peer {
    name: &'static str,
    exe: PathBuf,
    dir: TempDir,
    cgroup: String,
    /// Holds the namespaces of the pod.
    holder: Child,
}

impl Peer {
    fn new(name: &'static str, exe: PathBuf) -> Self {
        let dir = tempfile::tempdir().unwrap();
        tar::Archive::new(world::layer().as_slice()).unpack(dir.path().join("rootfs")).unwrap();
        let mut holder = Command::new("unshare");
        holder.args(["--net", "--ipc", "--uts", "sh", "-c", "echo; exec sleep 1000"]).stdout(Stdio::piped());
        let mut holder = holder.spawn().unwrap();
        let mut ready = [0];
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut ready).unwrap();
        Self { name, exe, dir, cgroup: world::instance().0, holder }
    }

    /// crun, for one, wants a machine with one kind of cgroups only.
    fn try_one(&self) -> Result<(), String> {
        self.bundle("trial");
        let bundle = self.dir.path().join("trial");
        let mut command = self.command(&["run", "--detach", "--bundle", bundle.to_str().unwrap(), "trial"]);
        let said = fs::File::create(bundle.join("said")).unwrap();
        let status = command.stderr(said).status().unwrap();
        let said = fs::read_to_string(bundle.join("said")).unwrap();
        if !status.success() {
            return Err(said.trim().to_owned());
        }
        self.run(&["delete", "--force", "trial"]);
        Ok(())
    }

    fn one_by_one(&self) {
        let (mut creates, mut starts, mut both) = (Times::new(), Times::new(), Times::new());
        let (mut execs, mut stops) = (Times::new(), Times::new());
        for round in 0..ROUNDS {
            let id = format!("one-{round}");
            self.bundle(&id);
            let begun = Instant::now();
            creates.sync(|| self.create(&id));
            starts.sync(|| self.run(&["start", &id]));
            both.0.push(begun.elapsed());
            execs.sync(|| self.run(&["exec", &id, "true"]));
            stops.sync(|| {
                self.run(&["kill", &id, "KILL"]);
                self.reap(&id);
            });
            self.run(&["delete", &id]);
        }
        tell(self.name, "create_p50", creates.median(), "ms");
        tell(self.name, "start_p50", starts.median(), "ms");
        tell(self.name, "create_start_p50", both.median(), "ms");
        tell(self.name, "exec_p50", execs.median(), "ms");
        tell(self.name, "stop_p50", stops.median(), "ms");
    }

    fn all_at_once(&self) {
        let ids: Vec<String> = (0..CROWD).map(|number| format!("many-{number}")).collect();
        ids.iter().for_each(|id| self.bundle(id));
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for id in &ids {
                scope.spawn(|| {
                    self.create(id);
                    self.run(&["start", id]);
                });
            }
        });
        tell(self.name, "starts_100_at_once", millis(begun.elapsed()), "ms");
        for id in &ids {
            self.run(&["kill", id, "KILL"]);
            self.reap(id);
            self.run(&["delete", id]);
        }
    }

    fn bundle(&self, id: &str) {
        let dir = self.dir.path().join(id);
        fs::create_dir(&dir).unwrap();
        let mut spec = serde_json::to_value(Spec::default()).unwrap();
        spec["process"]["args"] = serde_json::json!(["sh", "-c", SLEEP]);
        spec["process"]["terminal"] = false.into();
        spec["process"]["env"] = serde_json::json!(["PATH=/bin"]);
        spec["root"] = serde_json::json!({"path": self.dir.path().join("rootfs"), "readonly": false});
        spec["linux"]["cgroupsPath"] = format!("/{}/{id}", self.cgroup).into();
        spec["linux"]["namespaces"] = self.namespaces();
        fs::write(dir.join("config.json"), spec.to_string()).unwrap();
    }

    fn namespaces(&self) -> serde_json::Value {
        let held = |kind: LinuxNamespaceType, file: &str| serde_json::json!({"type": kind, "path": format!("/proc/{}/ns/{file}", self.holder.id())});
        serde_json::json!([
            {"type": LinuxNamespaceType::Pid},
            {"type": LinuxNamespaceType::Mount},
            held(LinuxNamespaceType::Network, "net"),
            held(LinuxNamespaceType::Ipc, "ipc"),
            held(LinuxNamespaceType::Uts, "uts"),
        ])
    }

    fn create(&self, id: &str) {
        let dir = self.dir.path().join(id);
        let (bundle, pid) = (dir.to_str().unwrap(), dir.join("pid"));
        self.run(&["create", "--bundle", bundle, "--pid-file", pid.to_str().unwrap(), id]);
    }

    /// We are process 1 here, so that what the runtime left behind is our child.
    fn reap(&self, id: &str) {
        let pid = fs::read_to_string(self.dir.path().join(id).join("pid")).unwrap();
        waitpid(Pid::from_raw(pid.trim().parse().unwrap()), None).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.exe);
        command.arg("--root").arg(self.dir.path().join("state")).args(args);
        // A pipe would never end: the container keeps it open.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) {
        let mut command = self.command(args);
        let status = command.status().unwrap();
        assert!(status.success(), "{command:?}: {status}");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        world::remove_cgroup(&self.cgroup);
    }
}

impl Times {
    fn sync(&mut self, work: impl FnOnce()) {
        let begun = Instant::now();
        work();
        self.0.push(begun.elapsed());
    }
}

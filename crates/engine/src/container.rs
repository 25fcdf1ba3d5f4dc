//! The verbs on containers: create, start, stop, remove.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use cri::{ContainerConfig, ContainerId, CriError, IdRange, SandboxId, SandboxState};
use shim::crash;
use shim::record;
use shim::wire::{self, Exit, Reply, Request};

use crate::anonymous::{AnonymousVolume, anonymous_volumes};
use crate::cgroups::Devices;
use crate::engine::{Inner, blocking, image_refusal};
use crate::images::{Hold, ImageError, Images};
use crate::labels::Modules;
use crate::launch::Program;
use crate::records::{self, ContainerRecord, SandboxRecord};
use crate::rootfs::Snapshots;
use crate::sandbox::remove_dir;
use crate::shim_client::Shim;
use crate::table::{ContainerEntry, Stage};
use crate::{devices, etc, gates, launch, rootfs, seccomp};

impl Inner {
    pub(crate) async fn create_container(
        self: &Arc<Self>,
        sandbox: &SandboxId,
        config: ContainerConfig,
    ) -> Result<ContainerId, CriError> {
        let (parent, shim) = self.ready_sandbox(sandbox)?;
        // CVE-2025-0750: a log path stays in the pod's log directory.
        if !config.log_path.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(CriError::Invalid(format!("log path {:?} is not a plain relative path", config.log_path)));
        }
        // Until it is recorded, nobody else knows that the layers are needed.
        let hold = self.hold_layers().await?;
        let resolved = self.images.resolve(&config.image).map_err(|error| image_refusal(&error))?;
        let resolved = resolved.ok_or_else(|| CriError::NotFound { what: "image", id: config.image.clone() })?;
        let mut program = launch::program(&config, &resolved.config, &parent.hostname)?;
        program.user = gates::user(program.user, parent.shim_version)?;
        let seccomp = seccomp::wanted(&config.security).await?;
        let labels = Modules::of_node().wanted(&config.security)?;
        gates::check(&config, &labels, parent.shim_version)?;
        gates::check_labels(&labels, self.snapshots)?;
        let id = ContainerId(self.ids.hex64());
        let mut record = ContainerRecord::of(id.clone(), &parent, &config, self.clock.now().wall);
        record.image_ref = resolved.image.repo_digests.first().unwrap_or(&resolved.image.id).clone();
        record.image = Images::shown_name(&config.image, &resolved.image);
        record.stop_signal = program.stop_signal;
        (record.stdin, record.tty) = (config.stdin, config.tty);
        record.input_stays = config.tty || !config.stdin_once;
        if parent.config.user_namespace.is_some() {
            launch::check_own_users(&config)?;
        }
        record.layers = resolved.layers;
        self.images.mark_used(&resolved.image.id);
        let images = self.image_volumes(&mut record)?;
        let volumes = anonymous_volumes(&self.dirs.container(sandbox, &id), &resolved.config.volumes, &config.mounts);
        let furnishing = Furnishing { volumes, images };
        let spec = wire::ContainerSpec { seccomp, ..self.spec(&parent, &record, &config, program, &furnishing)? };
        let spec = launch::labelled(spec, labels);
        if let Err(error) = self.make_container(&shim, spec, &config, (record.clone(), hold), furnishing).await {
            // What was begun goes; the shim has forgotten it or will be asked to.
            let _ = self.drop_container(sandbox, &id).await;
            return Err(error);
        }
        crash::point("container.recorded");
        let pod_uid = record.pod_uid.clone();
        let is_ready = {
            let mut table = self.table();
            table.containers.insert(id.clone(), ContainerEntry::new(record, Stage::Created));
            table.sandboxes.get(sandbox).is_some_and(|entry| entry.shim.is_some())
        };
        // Killed before it was in the table: told to nobody, but recorded.
        if let Ok(Some(exit)) = record::read::<Exit>(&self.dirs.container(sandbox, &id), wire::EXIT_RECORD) {
            self.on_exit(&id, exit);
        }
        if !is_ready {
            self.drop_container(sandbox, &id).await?;
            return Err(CriError::Failed(format!("sandbox {sandbox} was stopped meanwhile")));
        }
        self.announce(&pod_uid);
        Ok(id)
    }

    /// LC-315: the images that are mounted into it, one for each such mount.
    fn image_volumes(&self, record: &mut ContainerRecord) -> Result<Vec<ImageVolume>, CriError> {
        let mut found = Vec::new();
        for (number, mount) in record.mounts.iter_mut().enumerate() {
            let Some(name) = &mount.image else { continue };
            let resolved = self.images.resolve(name).map_err(|error| image_refusal(&error))?;
            let missing = || CriError::Failed(format!("failed to mount image volume {name:?}: not found"));
            let resolved = resolved.ok_or_else(missing)?;
            self.images.mark_used(&resolved.image.id);
            let place = self.images.whole(&resolved);
            mount.readonly = true;
            let part = mount.sub_path.clone();
            found.push(ImageVolume { number, place, part, layers: resolved.layers });
        }
        // What it is, and what it is made of.
        let stands_on = |volume: &ImageVolume| [slice::from_ref(&volume.place), &volume.layers].concat();
        record.volume_layers = found.iter().map(stands_on).collect();
        Ok(found)
    }

    async fn hold_layers(&self) -> Result<Hold, CriError> {
        let refused = |error: ImageError| image_refusal(&error);
        if let Some(hold) = self.images.try_hold().map_err(refused)? {
            return Ok(hold);
        }
        let images = self.images.clone();
        blocking(move || images.hold()).await?.map_err(refused)
    }

    fn ready_sandbox(&self, id: &SandboxId) -> Result<(SandboxRecord, Shim), CriError> {
        let table = self.table();
        let missing = || CriError::NotFound { what: "sandbox", id: id.0.clone() };
        let entry = table.sandboxes.get(id).ok_or_else(missing)?;
        match &entry.shim {
            Some(shim) if entry.record.state == SandboxState::Ready => Ok((entry.record.clone(), shim.clone())),
            _ => Err(CriError::Failed(format!("sandbox {id} is not ready"))),
        }
    }

    fn spec(
        &self,
        sandbox: &SandboxRecord,
        record: &ContainerRecord,
        config: &ContainerConfig,
        program: Program,
        furnishing: &Furnishing,
    ) -> Result<wire::ContainerSpec, CriError> {
        let dir = self.dirs.container(&sandbox.id, &record.id);
        let overlay = self.root_of(record, &dir, sandbox.config.user_namespace.is_some())?;
        let shared = etc::mounts(&self.dirs.sandbox(&sandbox.id), &config.mounts).into_iter();
        // As containerd has it: what is read-only is so as a whole.
        let readonly = config.security.readonly_rootfs;
        let shared = shared.map(|(source, destination)| wire::BindMount {
            source,
            destination,
            readonly,
            ..wire::BindMount::default()
        });
        let anonymous = furnishing.volumes.iter().map(|volume| wire::BindMount {
            source: volume.source.clone(),
            destination: volume.destination.clone(),
            ..wire::BindMount::default()
        });
        let own = config.mounts.iter().map(launch::bind).collect::<Result<Vec<_>, _>>()?;
        let own = own.into_iter().enumerate().map(|(number, bind)| furnishing.show(number, bind));
        let cgroup = self.pod_cgroup(&sandbox.config)?.join(record.id.as_str());
        Ok(wire::ContainerSpec {
            id: record.id.0.clone(),
            dir,
            overlay,
            log: record.log_path.clone(),
            args: program.args,
            env: program.env,
            cwd: program.cwd,
            user: program.user,
            mounts: anonymous.chain(shared).chain(own).collect(),
            readonly_rootfs: config.security.readonly_rootfs,
            privileged: config.security.privileged,
            no_new_privileges: config.security.no_new_privileges,
            capabilities: self.permitted(program.capabilities, config.security.privileged),
            // The caller knows.
            seccomp: wire::Seccomp::Default,
            labels: wire::Labels::default(),
            cgroup: self.cgroups.describe(&cgroup),
            pid: launch::pid_namespace(sandbox.config.pid, config),
            oom_score_adj: config.resources.oom_score_adj,
            log_limits: Some(launch::log_limits(sandbox.config.log_limits)),
            input: launch::input(config),
            tty: config.tty,
            guarded: launch::guarded(&config.security.guarded),
            devices: devices::given(config)?,
        })
    }

    /// With users of the pod's own the shim mounts the layers for them, and
    /// calls them by number.
    fn root_of(&self, record: &ContainerRecord, dir: &Path, own_users: bool) -> Result<wire::Overlay, CriError> {
        if self.snapshots == Snapshots::Copy {
            return Ok(wire::Overlay { base: dir.join("upper"), options: String::new(), layers: Vec::new() });
        }
        let layers = if own_users { record.layers.clone() } else { Vec::new() };
        let numbers: Vec<PathBuf> = (0..layers.len()).map(|number| Path::new("/").join(number.to_string())).collect();
        let named = if own_users { &numbers } else { &record.layers };
        let overlay = rootfs::overlay(named, &dir.join("upper"), &dir.join("work"))
            .map_err(|error| CriError::Invalid(error.to_string()))?;
        let options = overlay.options.into_string();
        let options = options.map_err(|_| CriError::Invalid("state directory is not valid UTF-8".into()))?;
        Ok(wire::Overlay { base: overlay.base, options, layers })
    }

    /// Where nothing checks who opens a device, nobody unprivileged may make
    /// device nodes, or a container could open the host's disk.
    fn permitted(&self, mut capabilities: Vec<String>, privileged: bool) -> Vec<String> {
        if !self.cgroups.has_device_rules() && !privileged {
            capabilities.retain(|name| name != "CAP_MKNOD");
        }
        capabilities
    }

    /// Directories and cgroup first; then the shim makes the container while
    /// the disk takes its record.
    async fn make_container(
        self: &Arc<Self>,
        shim: &Shim,
        spec: wire::ContainerSpec,
        config: &ContainerConfig,
        (record, hold): (ContainerRecord, Hold),
        furnishing: Furnishing,
    ) -> Result<(), CriError> {
        let failed = |what: &str, error: std::io::Error| CriError::Failed(format!("{what}: {error}"));
        let devices = if config.security.privileged {
            Devices::All
        } else {
            Devices::Standard(spec.devices.iter().map(devices::rule).collect())
        };
        let (dir, log, containers) = (spec.dir.clone(), spec.log.clone(), self.dirs.containers(&record.sandbox));
        let layers = record.layers.clone();
        let (users, version) = {
            let table = self.table();
            let sandbox = table.sandboxes.get(&record.sandbox).map(|entry| &entry.record);
            (sandbox.and_then(|it| it.config.user_namespace), sandbox.map_or(wire::VERSION, |it| it.shim_version))
        };
        let parts = gates::fixed_parts(&spec, version);
        let copies = self.snapshots == Snapshots::Copy || !furnishing.is_empty();
        let directories = blocking(move || {
            prepare_dirs(&dir, &log)?;
            crash::point("container.directories");
            let mut recording = Recording { dir, containers, unwritten: Some((record, hold)) };
            // An image may be large, and nobody who cleans up waits for its copies.
            if copies { recording.write().map(|()| recording) } else { Ok(recording) }
        });
        let unprepared = |error| failed("failed to prepare container", error);
        let mut recording = directories.await?.map_err(unprepared)?;
        self.prepare_image_volumes(furnishing.images).await?.map_err(unprepared)?;
        let (inner, dir) = (self.clone(), spec.dir.clone());
        let (cgroup, resources) = (relative(&spec.cgroup.path), config.resources.clone());
        let prepared = blocking(move || {
            let budget = || inner.images.budget(&layers, &dir).map_err(io::Error::other);
            if inner.snapshots == Snapshots::Copy {
                rootfs::copy::copy_layers(&layers, &dir.join("upper"), &mut budget()?)?;
            } else if let Some(IdRange { first, .. }) = users {
                // Whose the container's `/` is; a copy is shown to them as a whole.
                std::os::unix::fs::chown(dir.join("upper"), Some(first), Some(first))?;
            }
            if !furnishing.volumes.is_empty() {
                let mut budget = budget()?;
                furnishing.volumes.iter().try_for_each(|volume| volume.fill(&layers, &mut budget))?;
            }
            parts.iter().try_for_each(|(volume, part)| gates::has_part(volume, part))?;
            inner.cgroups.create(&cgroup, &resources, devices)
        });
        prepared.await?.map_err(unprepared)?;
        crash::point("container.prepared");
        let recorded = blocking(move || {
            recording.write()?;
            record::sync_dir(&recording.containers)
        });
        let making = async {
            let made = shim.call(Request::Create(Box::new(spec))).await;
            crash::point("container.made");
            made
        };
        let (made, recorded) = tokio::join!(making, recorded);
        made.map_err(|error| match error {
            CriError::Failed(message) => CriError::Failed(format!("failed to create container: {message}")),
            other => other,
        })?;
        recorded?.map_err(|error| failed("failed to record container", error))
    }

    /// Others may want the same image: whoever comes first makes it whole.
    async fn prepare_image_volumes(self: &Arc<Self>, volumes: Vec<ImageVolume>) -> Result<io::Result<()>, CriError> {
        for volume in volumes.into_iter().map(Arc::new) {
            loop {
                let (inner, volume) = (self.clone(), volume.clone());
                match blocking(move || volume.prepare(&inner.images)).await? {
                    Ok(true) => break,
                    Ok(false) => tokio::time::sleep(MERGE_LOOK).await,
                    Err(error) => return Ok(Err(error)),
                }
            }
        }
        Ok(Ok(()))
    }

    pub(crate) async fn start_container(&self, id: &ContainerId) -> Result<(), CriError> {
        let (shim, pod_uid) = {
            let table = self.table();
            let missing = || CriError::NotFound { what: "container", id: id.0.clone() };
            let entry = table.containers.get(id).ok_or_else(missing)?;
            if entry.stage != Stage::Created {
                return Err(CriError::Invalid(format!("container {id} is not in created state")));
            }
            let shim = table.sandboxes.get(&entry.record.sandbox).and_then(|sandbox| sandbox.shim.clone());
            (shim, entry.record.pod_uid.clone())
        };
        let shim = shim.ok_or_else(|| CriError::Failed("sandbox is not ready".into()))?;
        crash::point("container.starting");
        // On failure the shim has told of the exit already, before this answer.
        let Reply::Started { at_ns, user } = shim.call(Request::Start { container: id.0.clone() }).await? else {
            return Err(CriError::Failed("sandbox monitor gave an unexpected answer".into()));
        };
        crash::point("container.started");
        if let Some(entry) = self.table().containers.get_mut(id) {
            entry.user = user;
            if !entry.is_over() {
                entry.stage = Stage::Running { started_at_ns: at_ns };
            }
        }
        self.announce(&pod_uid);
        Ok(())
    }

    pub(crate) async fn reopen_log(&self, id: &ContainerId) -> Result<(), CriError> {
        let (_, shim) = self.monitor_of(id, 1, "reopen log")?;
        shim.call(Request::ReopenLog { container: id.0.clone() }).await.map(|_| ())
    }

    /// Told by the shim, after the exit record is on disk.
    pub(crate) fn on_exit(&self, id: &ContainerId, exit: Exit) {
        let mut table = self.table();
        let Some(entry) = table.containers.get_mut(id) else { return };
        entry.end(Stage::ended(exit));
        let pod_uid = entry.record.pod_uid.clone();
        drop(table);
        self.announce(&pod_uid);
    }

    /// TC-066. The shim keeps the deadline, so that it holds even if this
    /// process dies; here we only wait (TC-067: nobody else does).
    pub(crate) async fn stop_container(&self, id: &ContainerId, timeout: Duration) -> Result<(), CriError> {
        let (shim, signal, mut over) = {
            let table = self.table();
            // TC-053: what is unknown or over is stopped.
            let Some(entry) = table.containers.get(id) else { return Ok(()) };
            let shim = table.sandboxes.get(&entry.record.sandbox).and_then(|sandbox| sandbox.shim.clone());
            (shim, entry.record.stop_signal, entry.over.subscribe())
        };
        if *over.borrow() {
            return Ok(());
        }
        if let Some(shim) = shim {
            crash::point("container.stopping");
            let grace_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            match shim.call(Request::Stop { container: id.0.clone(), signal, grace_ms }).await {
                // Lost while asking: whoever notices marks it as over.
                Ok(_) | Err(CriError::NotFound { .. }) => {}
                Err(error) if *over.borrow() => tracing::debug!(%error, container = %id, "stopped by other means"),
                Err(error) => return Err(error),
            }
        }
        crash::point("container.signalled");
        // The table forgot it: then it was over before.
        let _ = over.wait_for(|over| *over).await;
        crash::point("container.stopped");
        Ok(())
    }

    pub(crate) async fn remove_container(self: &Arc<Self>, id: &ContainerId) -> Result<(), CriError> {
        self.stop_container(id, Duration::ZERO).await?;
        let Some(record) = self.table().containers.get(id).map(|entry| entry.record.clone()) else {
            return Ok(());
        };
        self.drop_container(&record.sandbox, id).await?;
        self.announce(&record.pod_uid);
        Ok(())
    }

    /// Forgets a container that does not run any more, everywhere. Its log stays.
    pub(crate) async fn drop_container(
        self: &Arc<Self>,
        sandbox: &SandboxId,
        id: &ContainerId,
    ) -> Result<(), CriError> {
        let (config, shim) = {
            let table = self.table();
            let entry = table.sandboxes.get(sandbox);
            (entry.map(|entry| entry.record.config.clone()), entry.and_then(|entry| entry.shim.clone()))
        };
        if let Some(shim) = shim {
            // Unknown there is what we want.
            let _ = shim.call(Request::Forget { container: id.0.clone() }).await;
        }
        crash::point("container.forgotten");
        if let Some(config) = config {
            let cgroup = self.pod_cgroup(&config)?.join(id.as_str());
            let cleared = self.clear_cgroup(&cgroup).await;
            cleared.map_err(|error| CriError::Failed(format!("failed to remove container cgroup: {error}")))?;
        }
        crash::point("container.cleared");
        let dir = self.dirs.container(sandbox, id);
        // The record first: a directory without one is cleared away at the next start.
        let _ = fs::remove_file(dir.join(records::CONTAINER));
        crash::point("container.removing");
        remove_dir(dir).await?;
        crash::point("container.removed");
        self.table().containers.remove(id);
        Ok(())
    }
}

/// Tells those who clean up what a container stands on.
struct Recording {
    dir: PathBuf,
    containers: PathBuf,
    /// Until it is on disk, nobody may clean up.
    unwritten: Option<(ContainerRecord, Hold)>,
}

impl Recording {
    fn write(&mut self) -> io::Result<()> {
        self.unwritten.take().map_or(Ok(()), |(record, _hold)| record::write(&self.dir, records::CONTAINER, &record))
    }
}

/// What has to be there before a container is made.
struct Furnishing {
    volumes: Vec<AnonymousVolume>,
    images: Vec<ImageVolume>,
}

impl Furnishing {
    fn is_empty(&self) -> bool {
        self.volumes.is_empty() && self.images.is_empty()
    }

    /// A mount of the configuration: one of an image is of its place, and
    /// never written to.
    fn show(&self, number: usize, bind: wire::BindMount) -> wire::BindMount {
        match self.images.iter().find(|image| image.number == number) {
            Some(image) => {
                wire::BindMount { source: image.place.clone(), readonly: true, source_readonly: true, ..bind }
            }
            None => bind,
        }
    }
}

/// An image that is mounted into a container.
struct ImageVolume {
    /// Of the mount.
    number: usize,
    place: PathBuf,
    part: Option<PathBuf>,
    layers: Vec<PathBuf>,
}

impl ImageVolume {
    /// One layer is shown as it is; several have to be one directory first,
    /// which all containers share. False: it is being made for another.
    fn prepare(&self, images: &Images) -> std::io::Result<bool> {
        if !images.merge(&self.place, &self.layers).map_err(std::io::Error::other)? {
            return Ok(false);
        }
        // Nothing is made in an image, also not by monitors that would.
        self.part.as_ref().map_or(Ok(()), |part| gates::has_part(&self.place, part))?;
        Ok(true)
    }
}

/// How often we look whether an image volume has been made for another.
const MERGE_LOOK: Duration = Duration::from_millis(20);

fn prepare_dirs(dir: &Path, log: &Path) -> std::io::Result<()> {
    DirBuilder::new().mode(0o700).create(dir)?;
    for name in ["upper", "work", "mount"] {
        let path = dir.join(name);
        fs::create_dir(&path)?;
        // Whatever the umask: this is the mode of the container's `/`.
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    }
    match log.parent() {
        Some(parent) => fs::create_dir_all(parent),
        None => Ok(()),
    }
}

fn relative(path: &Path) -> PathBuf {
    path.strip_prefix("/").unwrap_or(path).to_owned()
}

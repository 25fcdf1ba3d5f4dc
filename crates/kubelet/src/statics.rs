//! Static pods: manifests in a directory of the node or at a URL, followed as
//! they come, change and go (LC-353 to LC-355).
//!
//! Never: runs them; `pods` does. Talks to the API; `mirror` does.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ambient::Timestamp;
use lifecycle::{Manifest, ManifestSource, References, static_pod};
use objects::api::core::v1::Pod;
use objects::gates::Gates;
use rustix::fs::inotify;
use serde_json::Value;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use crate::ctx::Ctx;

mod url;

/// As upstream.
const MANIFEST_BYTES_MAX: u64 = 10 << 20;
/// As long as the names of files may be, with what is put before and after.
const UID_BYTES_MAX: usize = 128;
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
/// Several events of one change are one.
const PAUSE: Duration = Duration::from_millis(100);

/// What the node's own sources ask for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// Complete from the first moment on.
    files: Vec<Arc<Pod>>,
    /// `None`: it has not answered yet.
    url: Option<Vec<Arc<Pod>>>,
}

impl Wanted {
    /// Of two with one UID the first.
    pub(crate) fn pods(&self) -> Vec<Arc<Pod>> {
        let mut pods: BTreeMap<String, Arc<Pod>> = BTreeMap::new();
        for pod in self.files.iter().chain(self.url.iter().flatten()) {
            pods.entry(pod.metadata.uid.clone().unwrap_or_default()).or_insert_with(|| pod.clone());
        }
        pods.into_values().collect()
    }

    /// LC-015: every source has spoken.
    pub(crate) fn is_complete(&self) -> bool {
        self.url.is_some()
    }
}

/// Follows the sources for as long as somebody looks.
pub(crate) async fn follow(ctx: &Arc<Ctx>) -> watch::Receiver<Wanted> {
    let url = ctx.config.static_url.clone();
    let unasked = url.is_none().then(Vec::new);
    let (sender, receiver) = watch::channel(Wanted { files: Vec::new(), url: unasked });
    let sender = Arc::new(sender);
    if let Some(url) = url {
        tokio::spawn(url::follow(ctx.clone(), url, sender.clone()));
    }
    let Some(directory) = ctx.config.static_pods.clone() else { return receiver };
    let ctx = ctx.clone();
    let mut shelf = look(&ctx, &directory, Shelf::default(), &sender).await;
    tokio::spawn(async move {
        let mut bell = Bell::default();
        loop {
            tokio::select! {
                biased;
                () = sender.closed() => return,
                () = bell.ring(&directory) => tokio::time::sleep(PAUSE).await,
                () = tokio::time::sleep(ctx.config.periods.file_check) => {}
            }
            shelf = look(&ctx, &directory, shelf, &sender).await;
        }
    });
    receiver
}

async fn look(ctx: &Arc<Ctx>, directory: &Path, known: Shelf, sender: &watch::Sender<Wanted>) -> Shelf {
    let (reader, directory) = (Reader::of(ctx), directory.to_owned());
    let mut fresh = known.clone();
    let scan = tokio::task::spawn_blocking(move || {
        fresh.scan(&directory, &reader);
        fresh
    });
    let shelf = scan.await.unwrap_or_else(|error| {
        tracing::error!(%error, "the manifests could not be looked at; what they stood for goes on");
        known
    });
    let pods = shelf.pods();
    sender.send_if_modified(|known| {
        let is_new = known.files != pods;
        known.files = pods;
        is_new
    });
    shelf
}

/// What makes text a pod of this node.
#[derive(Debug, Clone)]
struct Reader {
    node_name: String,
    gates: Gates,
    now: Timestamp,
}

impl Reader {
    fn of(ctx: &Ctx) -> Self {
        let config = &ctx.config;
        Self { node_name: config.node_name.clone(), gates: config.gates.clone(), now: ctx.clock.now().wall }
    }

    /// Text that makes us fail costs its own pod, not those of all manifests.
    fn parse(&self, source: ManifestSource, location: &str, content: &[u8]) -> Result<Pod, String> {
        self.guarded(|| self.pod(as_document(content)?, source, location, content))
    }

    fn guarded<T>(&self, read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let read = std::panic::catch_unwind(AssertUnwindSafe(read));
        read.unwrap_or_else(|_| Err("the agent failed at it".to_owned()))
    }
}

/// The manifests, by file.
#[derive(Debug, Clone, Default)]
struct Shelf(BTreeMap<PathBuf, Entry>);

#[derive(Debug, Clone)]
struct Entry {
    content: Arc<[u8]>,
    /// What the file stood for when it was last understood.
    pod: Option<Arc<Pod>>,
}

impl Shelf {
    fn pods(&self) -> Vec<Arc<Pod>> {
        self.0.values().filter_map(|entry| entry.pod.clone()).collect()
    }

    fn scan(&mut self, directory: &Path, reader: &Reader) {
        let found = match self.files(directory) {
            Ok(found) => found,
            // Pods do not end because a disk cannot be read for a moment.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(directory = %directory.display(), %error, "manifests cannot be listed");
                return;
            }
            Err(_) => Vec::new(),
        };
        self.0.retain(|path, _| found.contains(path));
        for path in found {
            if let Err(problem) = self.read(&path, reader) {
                tracing::warn!(manifest = %path.display(), problem, "not a pod; what it stood for before goes on");
            }
        }
    }

    /// A file that is being written, or was broken, keeps its pod: an editor's
    /// half-done work must not stop what runs.
    fn read(&mut self, path: &Path, reader: &Reader) -> Result<(), String> {
        let mut content = Vec::new();
        // What became a FIFO since it was listed is not waited for.
        let file = std::fs::OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path);
        let file = file.map_err(|error| error.to_string())?;
        file.take(MANIFEST_BYTES_MAX + 1).read_to_end(&mut content).map_err(|error| error.to_string())?;
        if self.0.get(path).is_some_and(|entry| *entry.content == *content) {
            return Ok(());
        }
        let parsed = reader.parse(ManifestSource::File, &path.display().to_string(), &content);
        let former = self.0.remove(path).and_then(|entry| entry.pod);
        let (pod, answer) = match parsed {
            Ok(pod) => (Some(Arc::new(pod)), Ok(())),
            Err(problem) => (former, Err(problem)),
        };
        self.0.insert(path.to_owned(), Entry { content: content.into(), pod });
        answer
    }

    /// Regular files and links to them; not what is hidden, as editors leave it.
    /// What is no directory is the only file. One that cannot be looked at for a
    /// moment is still there if it was.
    fn files(&self, directory: &Path) -> std::io::Result<Vec<PathBuf>> {
        if directory.is_file() {
            return Ok(vec![directory.to_owned()]);
        }
        let mut found = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            let is_hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
            let is_file = match std::fs::metadata(&path) {
                Ok(found) => found.is_file(),
                Err(error) => error.kind() != std::io::ErrorKind::NotFound && self.0.contains_key(&path),
            };
            if !is_hidden && is_file {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }
}

fn as_document(content: &[u8]) -> Result<Value, String> {
    if content.len() as u64 > MANIFEST_BYTES_MAX {
        return Err(format!("larger than {MANIFEST_BYTES_MAX} bytes"));
    }
    let text = std::str::from_utf8(content).map_err(|error| error.to_string())?;
    let mut documents = objects::text::from_yaml(text).map_err(|error| format!("not YAML or JSON: {error}"))?;
    match documents.len() {
        1 => Ok(documents.remove(0)),
        count => Err(format!("one document was expected, there are {count}")),
    }
}

impl Reader {
    /// What an API server would do with it, then what makes it this node's.
    fn pod(&self, mut doc: Value, source: ManifestSource, location: &str, content: &[u8]) -> Result<Pod, String> {
        let names = (doc["apiVersion"].as_str(), doc["kind"].as_str());
        if names != (Some("v1"), Some("Pod")) {
            return Err(format!("apiVersion v1, kind Pod was expected, not {names:?}"));
        }
        let ops = objects::kinds::pod::KIND.ops;
        let unknown = ops.decode(&doc).map_err(|error| error.to_string())?;
        if let Some(field) = unknown.first() {
            return Err(format!("unknown field {field:?}"));
        }
        ops.default(&mut doc);
        let pod: Pod = serde_json::from_value(doc).map_err(|error| error.to_string())?;
        // It names directories and cgroups.
        if let Some(uid) = pod.metadata.uid.as_deref().filter(|uid| !is_plain(uid)) {
            return Err(format!("metadata.uid: {uid:?} is not a UID: letters, digits and - were expected"));
        }
        let manifest = Manifest { source, location, content, node_name: &self.node_name, seen_at: self.now };
        let references = match self.gates.enabled("PreventStaticPodAPIReferences") {
            true => References::Refused,
            false => References::Allowed,
        };
        let pod =
            static_pod(pod, manifest, references).map_err(|error| format!("{}: {}", error.field, error.problem))?;
        let doc = serde_json::to_value(&pod).map_err(|error| error.to_string())?;
        match ops.validate_create(&doc, &self.gates).first() {
            Some(error) => Err(format!("{}: {}", error.path, error.message())),
            None => Ok(pod),
        }
    }
}

fn is_plain(uid: &str) -> bool {
    (1..=UID_BYTES_MAX).contains(&uid.len()) && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Rings when something in the directory changed, as far as the kernel tells.
#[derive(Debug, Default)]
struct Bell(Option<AsyncFd<OwnedFd>>);

impl Bell {
    /// Without inotify, or without a directory, the regular look must do.
    async fn ring(&mut self, directory: &Path) {
        if self.0.is_none() {
            self.0 = hang(directory).ok();
        }
        let Some(bell) = &self.0 else { return std::future::pending().await };
        match bell.readable().await {
            Ok(mut ready) => {
                let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
                let mut events = inotify::Reader::new(bell.get_ref(), &mut buffer);
                while let Ok(event) = events.next() {
                    // The directory itself went away; another one may come.
                    if event.events().intersects(inotify::ReadFlags::IGNORED) {
                        self.0 = None;
                        return;
                    }
                }
                ready.clear_ready();
            }
            Err(_) => self.0 = None,
        }
    }
}

#[expect(deprecated, reason = "its replacement is unsafe; an owned descriptor is closed with its registration only")]
fn hang(directory: &Path) -> std::io::Result<AsyncFd<OwnedFd>> {
    let bell = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
    let what = inotify::WatchFlags::CLOSE_WRITE
        | inotify::WatchFlags::MOVED_TO
        | inotify::WatchFlags::MOVED_FROM
        | inotify::WatchFlags::DELETE
        | inotify::WatchFlags::CREATE
        | inotify::WatchFlags::DELETE_SELF
        | inotify::WatchFlags::ONLYDIR;
    inotify::add_watch(&bell, directory, what)?;
    AsyncFd::new(bell)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: app, image: 'a:1'}]\n";

    fn reader(gates: &str) -> Reader {
        Reader { node_name: "n1".into(), gates: Gates::parse(gates).unwrap(), now: Timestamp::UNIX_EPOCH }
    }

    fn names(shelf: &Shelf) -> Vec<String> {
        shelf.pods().iter().filter_map(|pod| pod.metadata.name.clone()).collect()
    }

    #[test]
    fn lc_353_files_come_and_go_and_half_written_ones_change_nothing() {
        let root = tempfile::tempdir().unwrap();
        let mut shelf = Shelf::default();
        let scan = |shelf: &mut Shelf| shelf.scan(root.path(), &reader(""));
        scan(&mut shelf);
        assert_eq!(names(&shelf), [""; 0]);
        let file = root.path().join("web.yaml");
        std::fs::write(&file, &POD[..60]).unwrap();
        scan(&mut shelf);
        assert_eq!(names(&shelf), [""; 0], "half a manifest is none");
        std::fs::write(&file, POD).unwrap();
        std::fs::write(root.path().join(".web.yaml.swp"), POD.replace("web", "other")).unwrap();
        std::fs::create_dir(root.path().join("below")).unwrap();
        scan(&mut shelf);
        assert_eq!(names(&shelf), ["web-n1"]);
        let first = shelf.pods();
        assert_eq!(first[0].spec.as_ref().unwrap().restart_policy.as_deref(), Some("Always"), "defaults are set");
        std::fs::write(&file, "spec: [").unwrap();
        scan(&mut shelf);
        assert_eq!(shelf.pods(), first, "a broken file keeps its pod");
        std::fs::write(&file, POD.replace("a:1", "a:2")).unwrap();
        scan(&mut shelf);
        assert_ne!(shelf.pods()[0].metadata.uid, first[0].metadata.uid, "another content is another pod");
        std::fs::rename(&file, root.path().join("renamed.yaml")).unwrap();
        scan(&mut shelf);
        assert_eq!(names(&shelf), ["web-n1"]);
        std::fs::remove_file(root.path().join("renamed.yaml")).unwrap();
        scan(&mut shelf);
        assert_eq!(names(&shelf), [""; 0]);
        scan(&mut Shelf::default());
    }

    #[test]
    fn lc_353_what_cannot_be_looked_at_for_a_moment_keeps_its_pod() {
        let root = tempfile::tempdir().unwrap();
        let (manifests, elsewhere) = (root.path().join("manifests"), root.path().join("elsewhere"));
        std::fs::create_dir(&manifests).unwrap();
        std::fs::write(&elsewhere, POD).unwrap();
        let link = manifests.join("web.yaml");
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        let mut shelf = Shelf::default();
        shelf.scan(&manifests, &reader(""));
        assert_eq!(names(&shelf), ["web-n1"]);
        // A link to itself: looking at it fails, as it does on a disk that is not well.
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&link, &link).unwrap();
        shelf.scan(&manifests, &reader(""));
        assert_eq!(names(&shelf), ["web-n1"], "it is there, and cannot be read");
        std::fs::remove_file(&link).unwrap();
        shelf.scan(&manifests, &reader(""));
        assert_eq!(names(&shelf), [""; 0]);
    }

    #[test]
    fn a_panic_at_one_manifest_is_a_problem_of_that_manifest() {
        let read = reader("").guarded::<Pod>(|| panic!("at this text"));
        assert_eq!(read.unwrap_err(), "the agent failed at it");
    }

    #[test]
    fn lc_392_manifests_are_checked_with_the_configured_gates() {
        let parse = |with: &str, gates: &str| {
            let text = POD.replace("image: 'a:1'", &format!("image: 'a:1', {with}"));
            reader(gates).parse(ManifestSource::File, "/m/p.yaml", text.as_bytes())
        };
        let rules = "restartPolicy: Never, restartPolicyRules: \
            [{action: RestartAllContainers, exitCodes: {operator: In, values: [1]}}]";
        let problem = parse(rules, "").unwrap_err();
        assert!(problem.contains("restartPolicyRules[0].action"), "{problem}");
        parse(rules, "NodeDeclaredFeatures=true,RestartAllContainersOnContainerExits=true").unwrap();
        let secret = "envFrom: [{secretRef: {name: s}}]";
        assert!(parse(secret, "").is_err());
        parse(secret, "PreventStaticPodAPIReferences=false").unwrap();
    }

    #[test]
    fn a_uid_that_is_a_path_is_refused() {
        for uid in ["../../etc", "a/b", "..", ""] {
            let text = POD.replace("name: web", &format!("name: web, uid: '{uid}'"));
            let problem = reader("").parse(ManifestSource::File, "/m/p.yaml", text.as_bytes()).unwrap_err();
            assert!(problem.starts_with("metadata.uid:"), "{uid:?}: {problem}");
        }
    }

    #[test]
    fn lc_355_what_needs_the_api_is_refused() {
        let problem = |text: &str| reader("").parse(ManifestSource::File, "/m/p.yaml", text.as_bytes()).unwrap_err();
        let env = POD.replace("image: 'a:1'", "image: 'a:1', envFrom: [{secretRef: {name: s}}]");
        assert!(problem(&env).contains("static pods may not reference secrets"), "{}", problem(&env));
        assert!(problem("kind: Pod").contains("apiVersion v1, kind Pod was expected"));
        assert!(problem(&POD.replace("image", "imagee")).contains("unknown field"));
        assert!(problem(&POD.replace("name: app", "name: A_B")).contains("spec.containers[0].name"));
    }
}

//! What one data directory owns: its lock, its identity, and the names on
//! this machine (bridge, cgroup, addresses) that derive from it.
//!
//! Several instances live side by side because every such name comes from
//! here and nowhere else.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ambient::Rng;
use anyhow::{Context, Result, bail};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

/// The directories of an instance, by what they hold.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) data: PathBuf,
    pub(crate) run: PathBuf,
}

const DATA_DIR: &str = "/var/lib/podium";
const RUN_DIR: &str = "/run/podium";

impl Places {
    pub(crate) fn new(data: Option<PathBuf>, run: Option<PathBuf>) -> Self {
        let run = run.or_else(|| data.as_ref().map(|data| data.join("run"))).unwrap_or_else(|| RUN_DIR.into());
        Self { data: absolute(data.unwrap_or_else(|| DATA_DIR.into())), run: absolute(run) }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data.join("admin.kubeconfig")
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.data.join("pki")
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.data.join("audit/audit.log")
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.data.join("store")
    }

    pub(crate) fn engine(&self) -> PathBuf {
        self.data.join("engine")
    }

    /// The embedded runtime's image store.
    pub(crate) fn images(&self) -> PathBuf {
        self.engine().join("images")
    }

    pub(crate) fn kubelet(&self) -> PathBuf {
        self.data.join("kubelet")
    }

    /// Persistent volumes made for claims.
    pub(crate) fn volumes(&self) -> PathBuf {
        self.data.join("volumes")
    }

    pub(crate) fn pod_logs(&self) -> PathBuf {
        self.data.join("logs").join("pods")
    }

    /// Which runtime has the pods.
    pub(crate) fn runtime(&self) -> PathBuf {
        self.data.join("runtime")
    }

    fn identity(&self) -> PathBuf {
        self.data.join("instance.json")
    }

    /// The same beside what runs: pods can be found and stopped although the
    /// data directory was lost.
    fn identity_copy(&self) -> PathBuf {
        self.run.join("instance.json")
    }

    fn lock(&self) -> PathBuf {
        self.data.join("lock")
    }
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Who an instance is. Written once, at its first start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Layout version of the data directory.
    format: u32,
    /// Six hexadecimal digits, unique on the machine for all practical purposes.
    id: String,
    /// Where the directory was when it was made. A copy elsewhere would fight
    /// with the original over bridge, cgroups and addresses.
    data_dir: PathBuf,
    pod_cidr: String,
}

/// The layout this build writes and understands.
const FORMAT: u32 = 1;

impl Identity {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// At most 15 bytes, as the kernel wants interface names.
    pub(crate) fn bridge(&self) -> String {
        format!("podium-{}", self.id)
    }

    pub(crate) fn cgroup_root(&self) -> String {
        format!("podium-{}", self.id)
    }

    pub(crate) fn pod_cidr(&self) -> Result<Cidr> {
        self.pod_cidr.parse()
    }
}

/// An opened data directory: nobody else runs on it while this lives.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) places: Places,
    pub(crate) identity: Identity,
    _lock: File,
}

impl Instance {
    /// Opens the data directory, making it at the first start.
    pub(crate) fn open(places: Places, pod_cidr: Option<&str>, rng: &mut Rng) -> Result<Self> {
        let is_new = !places.identity().exists();
        if is_new {
            refuse_foreign_directory(&places)?;
        } else {
            read_identity(&places)?;
        }
        make_private_dir(&places.data)?;
        let lock = take_lock(&places)?;
        let identity = match read_identity(&places)? {
            Some(identity) => identity,
            None => write_identity(&places, pod_cidr, rng)?,
        };
        if let Some(wanted) = pod_cidr.filter(|wanted| *wanted != identity.pod_cidr) {
            bail!(
                "--pod-cidr {wanted}: {} was made with {}; leave the flag out or use another --data-dir",
                places.data.display(),
                identity.pod_cidr
            );
        }
        make_private_dir(&places.run)?;
        write_private(&places.identity_copy(), &serde_json::to_vec_pretty(&identity)?)?;
        Ok(Self { places, identity, _lock: lock })
    }

    /// Opens it only if it was made before, and to take it down: what cannot be
    /// read in the data directory may be known beside what runs.
    pub(crate) fn open_to_remove(places: Places) -> Result<Option<Self>> {
        let copy = || read_identity_at(&places, &places.identity_copy()).ok().flatten();
        let identity = match read_identity(&places) {
            Ok(found) => found.or_else(copy),
            Err(error) => match copy() {
                Some(identity) => {
                    eprintln!("podium: {error:#}; going by {}", places.identity_copy().display());
                    Some(identity)
                }
                None => return Err(error),
            },
        };
        let Some(identity) = identity else { return Ok(None) };
        make_private_dir(&places.data)?;
        let lock = take_lock(&places)?;
        // The copy goes with what runs; whoever comes again finds this one.
        write_private(&places.identity(), &serde_json::to_vec_pretty(&identity)?)?;
        Ok(Some(Self { places, identity, _lock: lock }))
    }
}

/// The process that holds the data directory, if one does.
pub(crate) fn running_pid(places: &Places) -> Option<i32> {
    let lock = OpenOptions::new().read(true).write(true).open(places.lock()).ok()?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => None,
        Err(_) => read_pid(&lock),
    }
}

pub(crate) fn make_private_dir(path: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot make {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
        .with_context(|| format!("cannot make {} private", path.display()))
}

/// Replaces a file so that a crash leaves the old or the new one, never half.
pub(crate) fn write_private(path: &Path, contents: &[u8]) -> Result<()> {
    let fresh = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn refuse_foreign_directory(places: &Places) -> Result<()> {
    let Ok(mut entries) = fs::read_dir(&places.data) else { return Ok(()) };
    let is_ours = |name: &std::ffi::OsStr| name == "lock" || name == "engine" || name == "run";
    if entries.any(|entry| entry.is_ok_and(|entry| !is_ours(&entry.file_name()))) {
        bail!(
            "{} holds files that are not Podium's: choose an empty or new directory with --data-dir",
            places.data.display()
        );
    }
    Ok(())
}

fn take_lock(places: &Places) -> Result<File> {
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(places.lock())
        .with_context(|| format!("cannot open {}", places.lock().display()))?;
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        let holder = read_pid(&lock).map_or_else(String::new, |pid| format!(" (process {pid})"));
        bail!(
            "{} is in use by another podium{holder}: stop that one, or choose another --data-dir and --bind",
            places.data.display()
        );
    }
    lock.set_len(0)?;
    write!(lock, "{}", std::process::id())?;
    Ok(lock)
}

fn read_pid(mut lock: &File) -> Option<i32> {
    let mut text = String::new();
    lock.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn read_identity(places: &Places) -> Result<Option<Identity>> {
    read_identity_at(places, &places.identity())
}

fn read_identity_at(places: &Places, path: &Path) -> Result<Option<Identity>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    #[derive(Deserialize)]
    struct Versioned {
        format: u32,
    }
    let found: Versioned = serde_json::from_slice(&text)
        .with_context(|| format!("{} is damaged; restore it or start with a new --data-dir", path.display()))?;
    if found.format > FORMAT {
        bail!(
            "{} was written by a newer podium (format {}, this one knows {FORMAT}): use that version or a new --data-dir",
            places.data.display(),
            found.format
        );
    }
    let identity: Identity = serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))?;
    if identity.data_dir != places.data {
        bail!(
            "{} belongs to the instance made at {}: run it from there, or start with a new --data-dir",
            places.data.display(),
            identity.data_dir.display()
        );
    }
    Ok(Some(identity))
}

fn write_identity(places: &Places, pod_cidr: Option<&str>, rng: &mut Rng) -> Result<Identity> {
    let pod_cidr = match pod_cidr {
        Some(given) => given.parse::<Cidr>()?,
        None => free_cidr(rng)?,
    };
    let identity = Identity {
        format: FORMAT,
        id: format!("{:06x}", rng.next_u64() & 0xFF_FFFF),
        data_dir: places.data.clone(),
        pod_cidr: pod_cidr.to_string(),
    };
    write_private(&places.identity(), &serde_json::to_vec_pretty(&identity)?)?;
    Ok(identity)
}

/// A range of IPv4 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub(crate) address: Ipv4Addr,
    pub(crate) prefix: u8,
}

impl Cidr {
    pub(crate) fn contains(self, ip: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
        ip.to_bits() & mask == self.address.to_bits() & mask
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl std::str::FromStr for Cidr {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let (address, prefix) = text.split_once('/')?;
            let (address, prefix): (Ipv4Addr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
            (8..=28).contains(&prefix).then_some(Self { address, prefix })
        };
        let cidr = parse().with_context(|| format!("--pod-cidr {text}: say an IPv4 range such as 10.244.0.0/24"))?;
        let host_bits = u32::MAX >> cidr.prefix;
        if cidr.address.to_bits() & host_bits != 0 {
            bail!("--pod-cidr {text}: the address has bits outside the /{} prefix", cidr.prefix);
        }
        Ok(cidr)
    }
}

/// A /24 of 10.128.0.0/9 that no interface of this machine touches.
fn free_cidr(rng: &mut Rng) -> Result<Cidr> {
    let taken: Vec<Ipv4Addr> = local_addresses()
        .filter_map(|ip| match ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        })
        .collect();
    (0..64)
        .map(|_| Cidr { address: Ipv4Addr::from_bits((10 << 24) | (1 << 23) | (rng.below(1 << 15) << 8)), prefix: 24 })
        .find(|cidr| !taken.iter().any(|ip| cidr.contains(*ip)))
        .context("found no free range of pod addresses: name one with --pod-cidr")
}

/// Every address of this machine's interfaces.
pub(crate) fn local_addresses() -> impl Iterator<Item = IpAddr> {
    nix::ifaddrs::getifaddrs().into_iter().flatten().filter_map(|interface| {
        let address = interface.address?;
        if let Some(v4) = address.as_sockaddr_in() {
            return Some(IpAddr::V4(v4.ip()));
        }
        address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(dir: &tempfile::TempDir) -> Places {
        Places::new(Some(dir.path().join("data")), None)
    }

    #[test]
    fn an_instance_keeps_its_identity_and_excludes_a_second_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut rng = Rng::seeded(1);
        let first = Instance::open(places(&dir), None, &mut rng).unwrap();
        let error = Instance::open(places(&dir), None, &mut rng).unwrap_err().to_string();
        assert!(error.contains("is in use by another podium"), "{error}");
        assert_eq!(running_pid(&places(&dir)), i32::try_from(std::process::id()).ok());
        let identity = first.identity.clone();
        assert!(identity.bridge().len() <= 15);
        drop(first);
        assert_eq!(running_pid(&places(&dir)), None);
        assert_eq!(Instance::open(places(&dir), None, &mut rng).unwrap().identity, identity);
    }

    #[test]
    fn foreign_newer_and_copied_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut rng = Rng::seeded(1);
        drop(Instance::open(places(&dir), None, &mut rng).unwrap());
        let copy = Places::new(Some(dir.path().join("copy")), None);
        fs::create_dir(&copy.data).unwrap();
        fs::copy(places(&dir).identity(), copy.identity()).unwrap();
        assert!(
            Instance::open(copy.clone(), None, &mut rng).unwrap_err().to_string().contains("belongs to the instance")
        );
        fs::write(copy.identity(), r#"{"format": 99}"#).unwrap();
        assert!(Instance::open(copy.clone(), None, &mut rng).unwrap_err().to_string().contains("newer podium"));
        fs::remove_file(copy.identity()).unwrap();
        fs::write(copy.data.join("letters.txt"), "dear").unwrap();
        assert!(Instance::open(copy, None, &mut rng).unwrap_err().to_string().contains("not Podium's"));
    }

    #[test]
    fn an_instance_is_known_for_its_end_although_its_data_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places::new(Some(dir.path().join("data")), Some(dir.path().join("run")));
        assert!(Instance::open_to_remove(places.clone()).unwrap().is_none(), "there is nothing");
        let identity = Instance::open(places.clone(), None, &mut Rng::seeded(1)).unwrap().identity.clone();
        let known = || Instance::open_to_remove(places.clone()).map(|found| found.map(|it| it.identity.clone()));
        for damage in ["", "{", r#"{"format": 99}"#, r#"{"format": 1}"#] {
            fs::write(places.identity(), damage).unwrap();
            assert!(Instance::open(places.clone(), None, &mut Rng::seeded(1)).is_err(), "to start it must be whole");
            assert_eq!(known().unwrap().as_ref(), Some(&identity), "{damage:?}");
        }
        fs::remove_dir_all(&places.data).unwrap();
        assert_eq!(known().unwrap().as_ref(), Some(&identity));
        assert_eq!(read_identity(&places).unwrap().as_ref(), Some(&identity), "it is whole again");
        fs::write(places.identity(), "{").unwrap();
        fs::remove_dir_all(&places.run).unwrap();
        assert!(known().is_err(), "nobody knows");
    }

    #[test]
    fn pod_ranges_are_checked() {
        assert_eq!("10.244.0.0/24".parse::<Cidr>().unwrap().to_string(), "10.244.0.0/24");
        for bad in ["10.244.0.1/24", "10.244.0.0", "10.0.0.0/31", "pods"] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }
}

//! TC-298, TC-299: what pods were given, on disk, so that it holds after a
//! restart of the agent although the API was never told.
//!
//! One file in each pod's directory: it costs its own pod only, and goes with
//! it. The checksum tells a damaged one, which counts as none.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use lifecycle::{Allocation, Demand};
use objects::Quantity;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::ctx::Ctx;
use crate::durable;

const FILE: &str = "allocation.json";

/// As upstream's checkpoints: text, and what tells whether it is all of it.
#[derive(Serialize, Deserialize)]
struct Sealed {
    data: String,
    checksum: String,
}

#[derive(Serialize, Deserialize)]
struct Given {
    generation: i64,
    containers: BTreeMap<String, Lists>,
}

#[derive(Serialize, Deserialize)]
struct Lists {
    requests: BTreeMap<String, String>,
    limits: BTreeMap<String, String>,
}

/// Returns when it is on disk. A disk that takes nothing keeps no pod from
/// running: then what the API knows counts after a restart.
pub(crate) async fn keep(ctx: &Ctx, uid: &str, allocation: &Allocation) {
    let (dir, sealed) = (ctx.config.pod_dir(uid), seal(allocation));
    let kept = tokio::task::spawn_blocking(move || write(&dir, &sealed)).await;
    if let Err(error) = kept.map_err(io::Error::other).flatten() {
        tracing::warn!(uid, %error, "what the pod was given could not be kept on disk");
    }
}

/// Of all pods, by UID.
pub(crate) async fn restore(ctx: &Ctx) -> BTreeMap<String, Allocation> {
    let pods = ctx.config.pods_dir();
    tokio::task::spawn_blocking(move || read_all(&pods)).await.unwrap_or_default()
}

fn write(dir: &Path, sealed: &[u8]) -> io::Result<()> {
    if fs::read(dir.join(FILE)).is_ok_and(|known| known == sealed) {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o750).create(dir)?;
    durable::replace(dir, FILE, sealed)
}

fn read_all(pods: &Path) -> BTreeMap<String, Allocation> {
    let entries = fs::read_dir(pods).into_iter().flatten().flatten();
    let read = |dir: fs::DirEntry| {
        let uid = dir.file_name().to_string_lossy().into_owned();
        let sealed = fs::read(dir.path().join(FILE)).ok()?;
        let allocation = unseal(&sealed);
        if allocation.is_none() {
            tracing::warn!(uid, "the record of what the pod was given is damaged; what the API knows counts");
        }
        Some((uid, allocation?))
    };
    entries.filter_map(read).collect()
}

fn seal(allocation: &Allocation) -> Vec<u8> {
    let spell = |list: &BTreeMap<String, Quantity>| {
        list.iter().map(|(name, amount)| (name.clone(), amount.to_string())).collect()
    };
    let lists = |demand: &Demand| Lists { requests: spell(&demand.requests), limits: spell(&demand.limits) };
    let containers = allocation.containers.iter().map(|(name, demand)| (name.clone(), lists(demand))).collect();
    let given = Given { generation: allocation.generation, containers };
    let data = serde_json::to_string(&given).expect("maps of text are JSON");
    let checksum = checksum(&data);
    serde_json::to_vec(&Sealed { data, checksum }).expect("text is JSON")
}

fn unseal(sealed: &[u8]) -> Option<Allocation> {
    let Sealed { data, checksum: told } = serde_json::from_slice(sealed).ok()?;
    let Given { generation, containers } =
        serde_json::from_str(&data).ok().filter(|_: &Given| checksum(&data) == told)?;
    let read = |list: BTreeMap<String, String>| -> Option<BTreeMap<String, Quantity>> {
        list.into_iter().map(|(name, text)| Some((name, Quantity::parse(&text).ok()?))).collect()
    };
    let demand = |(name, lists): (String, Lists)| {
        Some((name, Demand { requests: read(lists.requests)?, limits: read(lists.limits)? }))
    };
    Some(Allocation { generation, containers: containers.into_iter().map(demand).collect::<Option<_>>()? })
}

fn checksum(data: &str) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(cpu: &str) -> Allocation {
        let amount = |text: &str| Quantity::parse(text).unwrap();
        let demand = Demand {
            requests: [("cpu".to_owned(), amount(cpu)), ("memory".to_owned(), amount("64Mi"))].into(),
            limits: [("example.com/gpu".to_owned(), amount("1"))].into(),
        };
        let containers = [("app".to_owned(), demand), ("side".to_owned(), Demand::default())].into();
        Allocation { generation: 3, containers }
    }

    #[test]
    fn tc_298_what_was_given_is_read_as_it_was_written() {
        let pods = tempfile::tempdir().unwrap();
        write(&pods.path().join("a"), &seal(&allocation("250m"))).unwrap();
        write(&pods.path().join("b"), &seal(&allocation("1"))).unwrap();
        write(&pods.path().join("b"), &seal(&allocation("1500m"))).unwrap();
        fs::create_dir(pods.path().join("without")).unwrap();
        let wanted = [("a".to_owned(), allocation("250m")), ("b".to_owned(), allocation("1500m"))];
        assert_eq!(read_all(pods.path()), wanted.into());
    }

    #[test]
    fn tc_298_a_torn_or_changed_record_counts_as_none_and_spoils_no_other() {
        let pods = tempfile::tempdir().unwrap();
        let whole = seal(&allocation("250m"));
        write(&pods.path().join("good"), &whole).unwrap();
        let torn = pods.path().join("torn");
        fs::create_dir(&torn).unwrap();
        for cut in 0..whole.len() {
            fs::write(torn.join(FILE), &whole[..cut]).unwrap();
            assert_eq!(read_all(pods.path()).into_keys().collect::<Vec<_>>(), ["good"], "cut after {cut} bytes");
        }
        let changed = String::from_utf8(whole).unwrap().replace("250m", "950m");
        fs::write(torn.join(FILE), changed).unwrap();
        assert_eq!(read_all(pods.path()).into_keys().collect::<Vec<_>>(), ["good"]);
    }
}

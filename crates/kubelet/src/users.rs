//! Which users of the node are those of a pod (`hostUsers: false`).
//!
//! Each such pod has a range of its own, written into its directory before its
//! sandbox is made. It is taken for as long as that directory is there, so
//! neither a restart of the agent nor a pod that lingers gives it away twice.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use cri::IdRange;
use serde::{Deserialize, Serialize};

use crate::durable;

/// As many as a pod of upstream's has.
const LENGTH: u32 = 1 << 16;
/// Below are the node's own users, and 65534 means nobody everywhere.
const FIRST: u32 = LENGTH;
/// The last range of all would hold the number that means "no number".
const RANGES: u32 = (u32::MAX / LENGTH) - 1;

/// Upstream's file, name and format.
const FILE: &str = "userns";

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// The pod's range, a free one if it has none yet. `pods` holds the
/// directories of all pods, its own included. One caller at a time.
pub(crate) fn range(pods: &Path, uid: &str) -> io::Result<IdRange> {
    let own = pods.join(uid);
    if let Some(range) = read(&own)? {
        return Ok(range);
    }
    let mut taken = BTreeSet::new();
    for entry in fs::read_dir(pods)? {
        taken.extend(read(&entry?.path())?.map(|range| range.first));
    }
    let mut all = (0..RANGES).map(|number| FIRST + number * LENGTH);
    let first = all.find(|first| !taken.contains(first));
    let first = first.ok_or_else(|| io::Error::other("no users are left on this node for one more pod"))?;
    write(&own, first)?;
    Ok(IdRange { first, length: LENGTH })
}

/// What a pod's directory says. A file that cannot be understood is an error:
/// its range might be in use.
fn read(dir: &Path) -> io::Result<Option<IdRange>> {
    let text = match fs::read(dir.join(FILE)) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        text => text?,
    };
    let wrong = || io::Error::other(format!("{} does not name the users of a pod", dir.join(FILE).display()));
    let record: Record = serde_json::from_slice(&text).map_err(|_| wrong())?;
    match record.uid_mappings.as_slice() {
        [Mapping { host_id, container_id: 0, length: LENGTH }]
            if host_id % LENGTH == 0 && *host_id >= FIRST && record.uid_mappings == record.gid_mappings =>
        {
            Ok(Some(IdRange { first: *host_id, length: LENGTH }))
        }
        _ => Err(wrong()),
    }
}

fn write(dir: &Path, first: u32) -> io::Result<()> {
    let mappings = vec![Mapping { host_id: first, container_id: 0, length: LENGTH }];
    let record = Record { uid_mappings: mappings.clone(), gid_mappings: mappings };
    durable::replace(dir, FILE, &serde_json::to_vec(&record)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pod_has_users_that_no_other_has() {
        let pods = tempfile::tempdir().unwrap();
        let range = |uid: &str| {
            fs::create_dir_all(pods.path().join(uid)).unwrap();
            super::range(pods.path(), uid).unwrap().first
        };
        assert_eq!([range("a"), range("b"), range("c")], [65_536, 131_072, 196_608]);
        // As after a restart: what is written counts.
        assert_eq!([range("b"), range("a")], [131_072, 65_536]);
        fs::remove_dir_all(pods.path().join("b")).unwrap();
        assert_eq!([range("d"), range("e")], [131_072, 262_144]);
        let text = fs::read_to_string(pods.path().join("d/userns")).unwrap();
        let mapping = r#"[{"hostId":131072,"containerId":0,"length":65536}]"#;
        assert_eq!(text, format!(r#"{{"uidMappings":{mapping},"gidMappings":{mapping}}}"#));
    }

    #[test]
    fn a_record_that_cannot_be_read_gives_nothing_away() {
        let pods = tempfile::tempdir().unwrap();
        for (uid, text) in [("torn", "{\"uidMapp"), ("node", r#"{"uidMappings":[],"gidMappings":[]}"#)] {
            fs::create_dir(pods.path().join(uid)).unwrap();
            fs::create_dir_all(pods.path().join("new")).unwrap();
            fs::write(pods.path().join(uid).join(FILE), text).unwrap();
            let refused = range(pods.path(), "new").unwrap_err().to_string();
            assert!(refused.contains(uid), "{refused}");
            fs::remove_dir_all(pods.path().join(uid)).unwrap();
        }
        assert_eq!(range(pods.path(), "new").unwrap().first, FIRST);
    }
}

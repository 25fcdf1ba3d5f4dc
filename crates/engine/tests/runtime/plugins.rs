//! CNI plugins that only remember whom they have connected.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use engine::Config;
use engine::network::CniConfig;

use crate::{leaks, world};

/// A directory per connection: made twice or taken back half it shows.
const SCRIPT: &str = r#"#!/bin/sh
place="$(dirname "$0")/../connections/$CNI_CONTAINERID-$(basename "$0")"
case "$CNI_COMMAND" in
ADD) mkdir "$place" && echo '{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.2/24"}]}' ;;
DEL) rmdir "$place" 2>/dev/null; true ;;
esac
"#;

pub(crate) struct Plugins(CniConfig);

impl Plugins {
    pub(crate) fn install(dir: &Path) -> Plugins {
        let config = places(dir);
        for place in [&config.conf_dir, &config.bin_dirs[0], &dir.join("connections")] {
            fs::create_dir(place).unwrap();
        }
        for kind in leaks::PLUGINS {
            let program = config.bin_dirs[0].join(kind);
            fs::write(&program, SCRIPT).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let list = r#"{"cniVersion":"1.0.0","name":"test","plugins":[{"type":"first"},{"type":"second"}]}"#;
        fs::write(config.conf_dir.join("10-test.conflist"), list).unwrap();
        Plugins(config)
    }

    pub(crate) fn connections(&self) -> Vec<String> {
        leaks::connections(&self.0)
    }
}

fn places(dir: &Path) -> CniConfig {
    CniConfig { conf_dir: dir.join("conf"), bin_dirs: vec![dir.join("bin")] }
}

/// Of an instance in this directory, by plugins if they are installed there.
pub(crate) fn config(dir: &Path, number: u32) -> Config {
    let cni = places(dir);
    Config { cni: cni.conf_dir.exists().then_some(cni), ..world::config(dir, number) }
}

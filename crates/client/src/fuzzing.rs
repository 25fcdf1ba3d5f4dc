//! What the fuzz targets feed; in no build but theirs.

use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig};
use serde_json::Value;

/// What a kubeconfig says.
pub fn kubeconfig(text: &str) -> Option<Value> {
    serde_json::to_value(Kubeconfig::from_yaml(text).ok()?).ok()
}

/// Up to the client that is made of it. Not if that runs a program or reads
/// files: these would be the fuzzer's to name.
pub async fn client(text: &str) {
    let Ok(file) = Kubeconfig::from_yaml(text) else { return };
    let users = file.auth_infos.iter().filter_map(|user| user.auth_info.as_ref());
    let clusters = file.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref());
    if users.clone().any(reaches_out) || clusters.clone().any(names_files) {
        return;
    }
    if let Ok(config) = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await {
        let _ = kube::Client::try_from(config);
    }
}

fn reaches_out(user: &AuthInfo) -> bool {
    let files = [&user.token_file, &user.client_certificate, &user.client_key];
    user.exec.is_some() || user.auth_provider.is_some() || files.iter().any(|file| file.is_some())
}

fn names_files(cluster: &Cluster) -> bool {
    cluster.certificate_authority.is_some()
}

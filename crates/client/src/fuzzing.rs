//! What the fuzz targets feed; in no build but theirs.

use kube::config::{KubeConfigOptions, Kubeconfig};

/// A kubeconfig, up to the client that is made of it.
pub async fn kubeconfig(text: &str) {
    let Ok(file) = Kubeconfig::from_yaml(text) else { return };
    if let Ok(config) = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await {
        let _ = kube::Client::try_from(config);
    }
}

//! What somebody finds who gets hold of the files.

use podium_misuse::{Cluster, trial};
use serde_json::json;

#[test]
fn a_copy_of_the_store_reveals_no_secret() {
    trial("13 a Secret in the store's file", async |cluster: &mut Cluster| {
        let marker = "tulips-at-midnight-4711";
        let secret = json!({"metadata": {"name": "hidden"}, "stringData": {"password": marker}});
        cluster.tenant.post("/api/v1/namespaces/hostile/secrets", &secret).await.ok();
        let encoded = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, marker);
        // With all that the server writes down about itself.
        let mut files = vec![cluster.podium().work().to_owned()];
        let mut read = 0;
        while let Some(path) = files.pop() {
            if path.is_dir() {
                files.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
            } else if let Ok(bytes) = std::fs::read(&path) {
                read += 1;
                let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
                assert!(!holds(marker) && !holds(&encoded), "{}", path.display());
            }
        }
        assert!(read > 3, "the store's files were found");
        format!("not in {read} files")
    });
}

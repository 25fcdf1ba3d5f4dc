//! Static pods from a URL (LC-353): one manifest, or a list of them, asked for
//! again and again.

use std::sync::Arc;
use std::time::Duration;

use ambient::Timestamp;
use lifecycle::{Manifest, ManifestSource};
use objects::api::core::v1::Pod;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{MANIFEST_BYTES_MAX, Wanted, as_document, parse, to_pod};
use crate::config::StaticUrl;
use crate::ctx::Ctx;
use crate::outbound::{self, GetError, Request, Tls};

/// As upstream.
const TIMEOUT: Duration = Duration::from_secs(10);
/// So many failures in a row are told; the rest only to who wants to know all.
const TOLD_MAX: u32 = 3;

/// For as long as somebody looks.
pub(super) async fn follow(ctx: Arc<Ctx>, source: StaticUrl, wanted: Arc<watch::Sender<Wanted>>) {
    let mut page = Page::default();
    let mut failures = 0;
    loop {
        match page.look(&ctx, &source).await {
            Ok(pods) => {
                failures = 0;
                if let Some(pods) = pods {
                    wanted.send_modify(|wanted| wanted.url = Some(pods));
                }
            }
            Err(problem) if failures < TOLD_MAX => {
                failures += 1;
                tracing::warn!(url = source.url, problem, "no static pods from there; what it asked for goes on");
            }
            Err(problem) => tracing::debug!(url = source.url, problem, "no static pods from there"),
        }
        tokio::select! {
            biased;
            () = wanted.closed() => return,
            () = tokio::time::sleep(ctx.config.periods.http_check) => {}
        }
    }
}

/// What was read last.
#[derive(Default)]
struct Page(Option<Vec<u8>>);

impl Page {
    /// `None`: as before.
    async fn look(&mut self, ctx: &Ctx, source: &StaticUrl) -> Result<Option<Vec<Arc<Pod>>>, String> {
        let content = fetch(source).await?;
        if self.0.as_ref() == Some(&content) {
            return Ok(None);
        }
        let pods = read(&content, source, &ctx.config.node_name, ctx.clock.now().wall);
        // What makes no sense is told once.
        self.0 = Some(content);
        pods.map(Some)
    }
}

async fn fetch(source: &StaticUrl) -> Result<Vec<u8>, String> {
    let request = Request {
        url: source.parsed()?,
        headers: &source.headers,
        user_agent: "podium",
        deadline: Some(Instant::now() + TIMEOUT),
        body_bytes_max: MANIFEST_BYTES_MAX as usize + 1,
        tls: Tls::Verified,
    };
    let answer = outbound::get(request).await;
    let answer = answer.map_err(|(GetError::PlainHttp(error) | GetError::Failed(error))| error)?;
    match answer.status {
        200 => answer.body,
        status => Err(format!("it answers with status {status}")),
    }
}

/// Nothing at all stands for no pods, as upstream.
fn read(content: &[u8], source: &StaticUrl, node_name: &str, seen_at: Timestamp) -> Result<Vec<Arc<Pod>>, String> {
    let whole = Manifest { source: ManifestSource::Http, location: &source.url, content, node_name, seen_at };
    if content.is_empty() {
        return Ok(Vec::new());
    }
    let document = as_document(content)?;
    if document["kind"] != "PodList" {
        return parse(whole).map(|pod| vec![Arc::new(pod)]);
    }
    let items = document["items"].as_array().cloned().unwrap_or_default();
    let pod = |mut item: Value| {
        (item["apiVersion"], item["kind"]) = ("v1".into(), "Pod".into());
        let content = item.to_string();
        to_pod(item, Manifest { content: content.as_bytes(), ..whole }).map(Arc::new)
    };
    items.into_iter().map(pod).collect()
}

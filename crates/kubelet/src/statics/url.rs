//! Static pods from a URL (LC-353): one manifest, or a list of them, asked for
//! again and again.

use std::sync::Arc;
use std::time::Duration;

use lifecycle::ManifestSource;
use objects::api::core::v1::Pod;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{MANIFEST_BYTES_MAX, Reader, Wanted, as_document};
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
        let content = fetch(ctx, source).await?;
        if self.0.as_ref() == Some(&content) {
            return Ok(None);
        }
        let reader = Reader::of(ctx);
        let pods = reader.guarded(|| read(&content, source, &reader));
        // What makes no sense is told once.
        self.0 = Some(content);
        pods.map(Some)
    }
}

async fn fetch(ctx: &Ctx, source: &StaticUrl) -> Result<Vec<u8>, String> {
    let request = Request {
        url: source.parsed()?,
        headers: &source.headers,
        user_agent: "podium",
        deadline: Some(Instant::now() + TIMEOUT),
        body_bytes_max: MANIFEST_BYTES_MAX as usize + 1,
        tls: Tls::Verified,
        // The node's own, and no pod's.
        names: ctx.lookups.of("", ""),
    };
    let answer = outbound::get(request).await;
    let answer = answer.map_err(|(GetError::PlainHttp(error) | GetError::Failed(error))| error)?;
    match answer.status {
        200 => answer.body,
        status => Err(format!("it answers with status {status}")),
    }
}

/// Nothing at all stands for no pods, as upstream.
fn read(content: &[u8], source: &StaticUrl, reader: &Reader) -> Result<Vec<Arc<Pod>>, String> {
    let of = |item: Value, content: &[u8]| reader.pod(item, ManifestSource::Http, &source.url, content).map(Arc::new);
    if content.is_empty() {
        return Ok(Vec::new());
    }
    let document = as_document(content)?;
    if document["kind"] != "PodList" {
        return of(document, content).map(|pod| vec![pod]);
    }
    let items = document["items"].as_array().cloned().unwrap_or_default();
    let pod = |mut item: Value| {
        (item["apiVersion"], item["kind"]) = ("v1".into(), "Pod".into());
        let content = item.to_string();
        of(item, content.as_bytes())
    };
    items.into_iter().map(pod).collect()
}

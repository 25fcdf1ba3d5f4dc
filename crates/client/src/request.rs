//! The verbs: get, list, create, replace, patch, delete, and raw requests.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ambient::Rng;
use http::{Request, Response};
use kube::api::{DeleteParams, GetParams, ListParams, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::client::Body;
use kube::core::ListMeta;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cache::Cache;
use crate::error::ApiError;
use crate::unreadable::{Unreadable, read};

/// A typed Kubernetes kind, as `objects::api` holds them.
pub trait Kind:
    kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static
{
}

impl<K> Kind for K where
    K: kube::Resource<DynamicType = ()>
        + Serialize
        + DeserializeOwned
        + Clone
        + std::fmt::Debug
        + Send
        + Sync
        + 'static
{
}

/// What a cache can hold: typed kinds, and [`crate::Owned`].
pub trait Followed: DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static {
    fn namespace(&self) -> &str;
    fn name(&self) -> &str;
    fn uid(&self) -> &str;
    fn version(&self) -> Option<&str>;
}

impl<K: Kind> Followed for K {
    fn namespace(&self) -> &str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    fn version(&self) -> Option<&str> {
        self.meta().resource_version.as_deref()
    }
}

/// Where the objects of a kind are, and how much of each is wanted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Feed {
    pub(crate) path: String,
    pub(crate) is_metadata: bool,
}

/// Which objects of a kind: everywhere, or narrowed down.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Scope {
    /// Empty: all namespaces, or a kind without namespaces.
    pub namespace: String,
    /// `spec.nodeName=n1`
    pub fields: Option<String>,
    /// `app=web,tier!=cache`
    pub labels: Option<String>,
}

impl Scope {
    pub fn everywhere() -> Self {
        Self::default()
    }

    pub fn fields(selector: impl Into<String>) -> Self {
        Self { fields: Some(selector.into()), ..Self::default() }
    }
}

/// A patch document and how it is to be read.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    Strategic(Value),
    Merge(Value),
    /// An array of RFC 6902 operations.
    Json(Value),
}

/// How to delete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deletion {
    pub grace_seconds: Option<u32>,
    /// Only this very object, not a later one of the same name.
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    /// None leaves it to the kind.
    pub propagation: Option<Propagation>,
}

/// What becomes of what the object owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

impl Deletion {
    pub(crate) fn params(&self) -> DeleteParams {
        let is_conditional = self.uid.is_some() || self.resource_version.is_some();
        let (uid, resource_version) = (self.uid.clone(), self.resource_version.clone());
        DeleteParams {
            grace_period_seconds: self.grace_seconds,
            preconditions: is_conditional.then_some(Preconditions { uid, resource_version }),
            propagation_policy: self.propagation.map(|propagation| match propagation {
                Propagation::Background => PropagationPolicy::Background,
                Propagation::Foreground => PropagationPolicy::Foreground,
                Propagation::Orphan => PropagationPolicy::Orphan,
            }),
            ..DeleteParams::default()
        }
    }
}

/// The answer to a list: the objects and the moment they are from.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<K> {
    pub items: Vec<K>,
    pub resource_version: String,
}

/// A list whose objects are still text: one that cannot be read must not hide
/// the others.
#[derive(Deserialize)]
pub(crate) struct RawList {
    #[serde(default)]
    metadata: ListMeta,
    pub(crate) items: Vec<Box<RawValue>>,
}

/// Objects per list request; larger lists come in several.
const PAGE_SIZE: u32 = 500;
/// A list of more pages than this is a server that never ends one.
const PAGES_MAX: usize = 10_000;

/// A connection to one API server, cheap to clone. Clones share caches.
#[derive(Clone)]
pub struct Client {
    inner: kube::Client,
    caches: Arc<Mutex<Caches>>,
    jitter: Option<Arc<Mutex<Rng>>>,
}

type Caches = BTreeMap<(TypeId, Scope), Weak<dyn Any + Send + Sync>>;

fn unusable(error: impl std::fmt::Display) -> ApiError {
    ApiError::Config { message: error.to_string() }
}

async fn read_kubeconfig(path: &Path) -> Result<kube::Config, ApiError> {
    let file = kube::config::Kubeconfig::read_from(path).map_err(unusable)?;
    let options = kube::config::KubeConfigOptions::default();
    kube::Config::from_custom_kubeconfig(file, &options).await.map_err(unusable)
}

/// The authorities (DER) a kubeconfig trusts its API server by; none where it leaves that to the system.
pub async fn authorities(kubeconfig: &Path) -> Result<Vec<Vec<u8>>, ApiError> {
    Ok(read_kubeconfig(kubeconfig).await?.root_cert.unwrap_or_default())
}

/// Host and port of the API server a kubeconfig names.
pub async fn server(kubeconfig: &Path) -> Result<(String, u16), ApiError> {
    let url = read_kubeconfig(kubeconfig).await?.cluster_url;
    let usual = if url.scheme_str() == Some("http") { 80 } else { 443 };
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    Ok((host.to_owned(), url.port_u16().unwrap_or(usual)))
}

impl Client {
    /// Over any service that answers like an API server. Needs a tokio runtime.
    pub fn new<S, B>(service: S) -> Self
    where
        S: tower::Service<Request<Body>, Response = Response<B>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<tower::BoxError>,
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<tower::BoxError>,
    {
        Self::over(kube::Client::new(service, "default"))
    }

    /// Over HTTPS, as a kubeconfig says (its current context).
    pub async fn from_kubeconfig(path: &Path) -> Result<Self, ApiError> {
        let mut config = read_kubeconfig(path).await?;
        // Retries belong to whoever knows what is at stake; theirs jitter by the thread's randomness.
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = None;
        let inner = kube::Client::try_from(config).map_err(unusable)?;
        Ok(Self::over(inner))
    }

    fn over(inner: kube::Client) -> Self {
        Self { inner, caches: Arc::default(), jitter: None }
    }

    /// Spreads reconnections, so that many nodes do not come back at once.
    pub fn with_jitter(self, rng: Rng) -> Self {
        Self { jitter: Some(Arc::new(Mutex::new(rng))), ..self }
    }

    /// The shared cache of these objects; the first caller starts its watch,
    /// the last one to drop it ends it.
    pub fn cache<K: Kind>(&self, scope: Scope) -> Arc<Cache<K>> {
        let mut caches = self.caches.lock().expect("caches are never poisoned: no code panics while holding them");
        let key = (TypeId::of::<K>(), scope.clone());
        let running = caches.get(&key).and_then(Weak::upgrade);
        if let Some(cache) = running.and_then(|cache| cache.downcast::<Cache<K>>().ok()) {
            return cache;
        }
        let feed = Feed { path: url::<K>(&scope.namespace), is_metadata: false };
        let cache = Cache::start(self.clone(), feed, scope, |_| {});
        let weak = Arc::downgrade(&cache);
        let erased: Weak<dyn Any + Send + Sync> = weak;
        caches.retain(|_, cache| cache.strong_count() > 0);
        caches.insert(key, erased);
        cache
    }

    /// A cache of the caller's own, in which nobody sees an object before
    /// `prepare` was done to it.
    pub fn prepared_cache<K: Kind>(&self, scope: Scope, prepare: fn(&mut K)) -> Arc<Cache<K>> {
        let feed = Feed { path: url::<K>(&scope.namespace), is_metadata: false };
        Cache::start(self.clone(), feed, scope, prepare)
    }

    /// `namespace` is empty for kinds without namespaces.
    pub async fn get<K: Kind>(&self, namespace: &str, name: &str) -> Result<K, ApiError> {
        self.ask(paths::<K>(namespace).get(name, &GetParams::default())).await
    }

    /// A consistent list: as new as the moment of the call (W1).
    /// Objects that cannot be read are left out and told of.
    pub async fn list<K: Kind>(&self, scope: &Scope) -> Result<Page<K>, ApiError> {
        let feed = Feed { path: url::<K>(&scope.namespace), is_metadata: false };
        let (page, unreadable) = self.fetch(&feed, scope).await?;
        unreadable.iter().for_each(|object| object.tell(&feed.path));
        Ok(page)
    }

    /// The objects, and those of them that cannot be read.
    pub(crate) async fn fetch<K: Followed>(
        &self,
        feed: &Feed,
        scope: &Scope,
    ) -> Result<(Page<K>, Vec<Unreadable>), ApiError> {
        let paths = kube::core::Request::new(feed.path.clone());
        let mut params = ListParams::default().limit(PAGE_SIZE);
        params.field_selector.clone_from(&scope.fields);
        params.label_selector.clone_from(&scope.labels);
        let (mut items, mut unreadable) = (Vec::new(), Vec::new());
        for _ in 0..PAGES_MAX {
            let request = if feed.is_metadata { paths.list_metadata(&params) } else { paths.list(&params) };
            let page: RawList = self.ask(request).await?;
            for item in &page.items {
                match read(item) {
                    Ok(object) => items.push(object),
                    Err(object) => unreadable.push(object),
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => {
                    let resource_version = page.metadata.resource_version.unwrap_or_default();
                    return Ok((Page { items, resource_version }, unreadable));
                }
            }
        }
        Err(ApiError::Unreadable { message: "the list never ends".to_owned() })
    }

    pub async fn create<K: Kind>(&self, object: &K) -> Result<K, ApiError> {
        let body = encode(object)?;
        self.ask(paths::<K>(&namespace_of(object)).create(&PostParams::default(), body)).await
    }

    pub async fn replace<K: Kind>(&self, object: &K) -> Result<K, ApiError> {
        let body = encode(object)?;
        let name = object.meta().name.clone().unwrap_or_default();
        self.ask(paths::<K>(&namespace_of(object)).replace(&name, &PostParams::default(), body)).await
    }

    /// PUT to a subresource (`status`, `finalize`).
    pub async fn replace_subresource<K: Kind>(&self, object: &K, subresource: &str) -> Result<K, ApiError> {
        let body = encode(object)?;
        let name = object.meta().name.clone().unwrap_or_default();
        let paths = paths::<K>(&namespace_of(object));
        self.ask(paths.replace_subresource(subresource, &name, &PostParams::default(), body)).await
    }

    pub async fn patch<K: Kind>(&self, namespace: &str, name: &str, patch: &Patch) -> Result<K, ApiError> {
        self.ask(patch.request(&paths::<K>(namespace), name, None)?).await
    }

    pub async fn patch_status<K: Kind>(&self, namespace: &str, name: &str, patch: &Patch) -> Result<K, ApiError> {
        self.ask(patch.request(&paths::<K>(namespace), name, Some("status"))?).await
    }

    /// The server's last word: the object as it now is, or a Status.
    pub async fn delete<K: Kind>(&self, namespace: &str, name: &str, how: &Deletion) -> Result<(), ApiError> {
        let _answer: Value = self.ask(paths::<K>(namespace).delete(name, &how.params())).await?;
        Ok(())
    }

    /// POST to a subresource (`binding`, `eviction`), answer as it comes.
    pub async fn create_subresource<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
        subresource: &str,
        body: &Value,
    ) -> Result<Value, ApiError> {
        let body = encode(body)?;
        self.ask(paths::<K>(namespace).create_subresource(subresource, name, &PostParams::default(), body)).await
    }

    /// Any request with any JSON answer.
    pub async fn request(&self, request: Request<Vec<u8>>) -> Result<Value, ApiError> {
        self.inner.request(request).await.map_err(ApiError::of_kube)
    }

    pub(crate) fn inner(&self) -> &kube::Client {
        &self.inner
    }

    /// `delay`, and up to half of it more where jitter is wanted.
    pub(crate) fn jittered(&self, delay: Duration) -> Duration {
        let Some(rng) = &self.jitter else { return delay };
        let mut rng = rng.lock().expect("the generator is never poisoned: no code panics while holding it");
        delay.mul_f64(1.0 + rng.fraction() / 2.0)
    }

    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, ApiError> {
        let request = request.map_err(|error| ApiError::Invalid { message: error.to_string() })?;
        self.inner.request(request).await.map_err(ApiError::of_kube)
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

fn url<K: Kind>(namespace: &str) -> String {
    K::url_path(&(), (!namespace.is_empty()).then_some(namespace))
}

fn paths<K: Kind>(namespace: &str) -> kube::core::Request {
    kube::core::Request::new(url::<K>(namespace))
}

fn namespace_of<K: Kind>(object: &K) -> String {
    object.meta().namespace.clone().unwrap_or_default()
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(value).map_err(|error| ApiError::Invalid { message: error.to_string() })
}

pub(crate) type Built = Result<Request<Vec<u8>>, kube::core::request::Error>;

impl Patch {
    pub(crate) fn request(
        &self,
        paths: &kube::core::Request,
        name: &str,
        subresource: Option<&str>,
    ) -> Result<Built, ApiError> {
        let patch = match self {
            Self::Strategic(value) => kube::api::Patch::Strategic(value.clone()),
            Self::Merge(value) => kube::api::Patch::Merge(value.clone()),
            Self::Json(value) => {
                let operations = serde_json::from_value(value.clone());
                kube::api::Patch::Json(operations.map_err(|error| ApiError::Invalid { message: error.to_string() })?)
            }
        };
        let params = PatchParams::default();
        Ok(match subresource {
            Some(subresource) => paths.patch_subresource(subresource, name, &params, &patch),
            None => paths.patch(name, &params, &patch),
        })
    }
}

//! Drives `controllers::namespaces`: what every namespace has.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use client::{ApiError, Cache, Client, Scope};
use controllers::namespaces::{ACCOUNT, AUTHORITY, Snapshot, Write, plan};
use objects::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use objects::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Pause before a namespace that could not be settled is looked at again.
const RETRY: Duration = Duration::from_secs(1);

struct Driver {
    client: Client,
    certificate: String,
    namespaces: Arc<Cache<Namespace>>,
    accounts: Arc<Cache<ServiceAccount>>,
    authorities: Arc<Cache<ConfigMap>>,
}

/// Never returns. `certificate` is the authority's, in PEM.
pub(crate) async fn run(client: Client, certificate: String) -> Infallible {
    let named = |name: &str| Scope::fields(format!("metadata.name={name}"));
    let driver = Driver {
        namespaces: client.cache(Scope::everywhere()),
        accounts: client.cache(named(ACCOUNT)),
        authorities: client.cache(named(AUTHORITY)),
        client,
        certificate,
    };
    driver.namespaces.synced().await;
    driver.accounts.synced().await;
    driver.authorities.synced().await;
    let (mut namespaces, mut accounts, mut authorities) =
        (driver.namespaces.subscribe(), driver.accounts.subscribe(), driver.authorities.subscribe());
    let (mut pending, mut failed) = (BTreeSet::<String>::new(), BTreeSet::new());
    loop {
        while let Some(name) = pending.pop_first() {
            if let Err(error) = driver.settle(&name).await {
                tracing::warn!(namespace = name, %error, "a namespace lacks what it should have");
                failed.insert(name);
            }
        }
        let place = |meta: &ObjectMeta| meta.namespace.clone().unwrap_or_default();
        tokio::select! {
            biased;
            change = namespaces.next() => {
                pending.insert(change.object().metadata.name.clone().unwrap_or_default());
            }
            change = accounts.next() => drop(pending.insert(place(&change.object().metadata))),
            change = authorities.next() => drop(pending.insert(place(&change.object().metadata))),
            () = tokio::time::sleep(RETRY), if !failed.is_empty() => pending.append(&mut failed),
        }
    }
}

impl Driver {
    async fn settle(&self, name: &str) -> Result<(), ApiError> {
        let Some(namespace) = self.namespaces.get("", name) else { return Ok(()) };
        let authority = self.authorities.get(name, AUTHORITY);
        let seen = Snapshot {
            namespace: &namespace,
            has_account: self.accounts.get(name, ACCOUNT).is_some(),
            authority: authority.as_deref(),
        };
        for write in plan(&seen, &self.certificate) {
            let outcome = match write {
                Write::CreateAccount => {
                    let metadata = ObjectMeta {
                        name: Some(ACCOUNT.to_owned()),
                        namespace: Some(name.to_owned()),
                        ..ObjectMeta::default()
                    };
                    self.client.create(&ServiceAccount { metadata, ..ServiceAccount::default() }).await.map(drop)
                }
                Write::CreateAuthority(map) => self.client.create(map.as_ref()).await.map(drop),
                Write::ReplaceAuthority(map) => self.client.replace(map.as_ref()).await.map(drop),
            };
            match outcome {
                // Somebody was faster, or the namespace goes away: we will see it.
                Ok(())
                | Err(ApiError::AlreadyExists { .. } | ApiError::Conflict { .. } | ApiError::NotFound { .. }) => {}
                Err(ApiError::Forbidden { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

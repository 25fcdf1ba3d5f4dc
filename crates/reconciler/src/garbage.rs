//! Drives `controllers::garbage`: follows every kind, looks owners up, deletes
//! what nobody owns any more.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use client::{ApiError, Cache, Change, Client, Deletion, Owned, Patch, Propagation};
use controllers::garbage::{Fact, Garbage, Object, Owner, Place, Policy, Sought, Step};
use futures::StreamExt as _;
use futures::stream::{self, SelectAll};
use objects::{Kind, kinds};
use serde_json::{Value, json};

/// Pause before what failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Never returns.
pub(crate) async fn run(client: Client) -> Infallible {
    let caches = follow(&client);
    // What was merely not seen yet must not count as gone.
    for (_, cache) in &caches {
        cache.synced().await;
    }
    let mut news: SelectAll<_> = caches.iter().map(|(kind, cache)| changes(kind, cache)).collect();
    let mut garbage = Garbage::default();
    let mut failed = Vec::new();
    loop {
        while let Some(uid) = garbage.take() {
            for step in garbage.plan(&uid) {
                match perform(&client, &step).await {
                    Ok(learnt) => learnt.into_iter().for_each(|fact| garbage.absorb(fact)),
                    Err(error) => {
                        tracing::warn!(uid, %error, "garbage is not collected yet");
                        failed.push(uid.clone());
                        break;
                    }
                }
            }
        }
        tokio::select! {
            biased;
            fact = news.next() => garbage.absorb(fact.expect("caches never end")),
            () = tokio::time::sleep(RETRY), if !failed.is_empty() => {
                failed.drain(..).for_each(|uid| garbage.give_back(uid));
            }
        }
    }
}

type Caches = Vec<(&'static Kind, Arc<Cache<Owned>>)>;

/// API-191: Events own nothing and belong to nobody.
fn follow(client: &Client) -> Caches {
    let is_collected = |kind: &&Kind| kind.ops.is_stored() && kind.ops.view().is_none() && kind.kind != "Event";
    let collected = kinds::ALL.iter().copied().filter(is_collected);
    collected.map(|kind| (kind, client.untyped(kind).follow())).collect()
}

fn changes(kind: &'static Kind, cache: &Cache<Owned>) -> stream::BoxStream<'static, Fact> {
    let from = cache.subscribe();
    Box::pin(stream::unfold(from, move |mut from| async move {
        let fact = match from.next().await {
            Change::Applied(object) => Fact::Seen(Arc::new(object_of(kind, &object))),
            Change::Deleted(object) => Fact::Gone { uid: object.metadata.uid.clone() },
        };
        Some((fact, from))
    }))
}

fn object_of(kind: &Kind, object: &Owned) -> Object {
    let meta = &object.metadata;
    let owner = |owner: &client::Owner| Owner {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        blocks: owner.block_owner_deletion,
    };
    Object {
        at: Place {
            api_version: kind.api_version(),
            kind: kind.kind.to_owned(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
        },
        uid: meta.uid.clone(),
        version: meta.resource_version.clone().unwrap_or_default(),
        owners: meta.owner_references.iter().map(owner).collect(),
        finalizers: meta.finalizers.clone(),
        is_deleting: meta.deletion_timestamp.is_some(),
    }
}

async fn perform(client: &Client, step: &Step) -> Result<Option<Fact>, ApiError> {
    let done = match step {
        Step::LookUp(owner) => return look_up(client, owner).await.map(Some),
        Step::Delete { object, policy } => delete(client, object, *policy).await,
        Step::DropOwners { object, uids } => {
            let gone = uids.iter().map(|uid| json!({"$patch": "delete", "uid": uid})).collect();
            change(client, object, "ownerReferences", gone).await
        }
        Step::Unblock { object } => {
            let free = |owner: &Owner| json!({"uid": owner.uid, "blockOwnerDeletion": false});
            change(client, object, "ownerReferences", object.owners.iter().map(free).collect()).await
        }
        Step::DropFinalizer { object, finalizer } => {
            change(client, object, "$deleteFromPrimitiveList/finalizers", vec![json!(finalizer)]).await
        }
    };
    match done {
        // What changed meanwhile is seen and looked at again.
        Ok(()) | Err(ApiError::Conflict { .. } | ApiError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// TC-403: another object of the same name is not it. Kinds nobody serves are
/// nothing we could know about.
async fn look_up(client: &Client, owner: &Sought) -> Result<Fact, ApiError> {
    let Some(kind) = kinds::find_kind(&owner.api_version, &owner.kind) else {
        return Ok(Fact::Present { owner: owner.clone() });
    };
    let namespace = if kind.is_namespaced() { owner.namespace.as_str() } else { "" };
    // TC-408: sought from outside all namespaces it is nowhere.
    if kind.is_namespaced() && namespace.is_empty() {
        return Ok(Fact::Present { owner: owner.clone() });
    }
    match client.untyped(kind).get(namespace, &owner.name).await {
        Ok(found) if found.metadata.uid == owner.uid => Ok(Fact::Present { owner: owner.clone() }),
        Ok(_) | Err(ApiError::NotFound { .. }) => Ok(Fact::Absent { owner: owner.clone() }),
        Err(error) => Err(error),
    }
}

async fn delete(client: &Client, object: &Object, policy: Policy) -> Result<(), ApiError> {
    let how = Deletion {
        uid: Some(object.uid.clone()),
        resource_version: Some(object.version.clone()),
        propagation: Some(match policy {
            Policy::Background => Propagation::Background,
            Policy::Foreground => Propagation::Foreground,
            Policy::Orphan => Propagation::Orphan,
        }),
        ..Deletion::default()
    };
    tracing::info!(
        kind = object.at.kind,
        namespace = object.at.namespace,
        name = object.at.name,
        "its owners are gone"
    );
    client.untyped(kind_of(object)).delete(&object.at.namespace, &object.at.name, &how).await
}

/// Only of the version that was seen.
async fn change(client: &Client, object: &Object, field: &str, value: Vec<Value>) -> Result<(), ApiError> {
    let patch = json!({"metadata": {"uid": object.uid, "resourceVersion": object.version, field: value}});
    client.untyped(kind_of(object)).patch(&object.at.namespace, &object.at.name, &Patch::Strategic(patch)).await
}

fn kind_of(object: &Object) -> &'static Kind {
    kinds::find_kind(&object.at.api_version, &object.at.kind).expect("it was seen as one of ours")
}

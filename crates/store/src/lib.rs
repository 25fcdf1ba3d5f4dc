//! A revisioned key-value store: what the API server keeps its objects in.
//!
//! Holds: one contract ([`Store`]) and its engines. Every engine passes
//! `tests/contract.rs`. Values are opaque bytes; nothing here knows a
//! Kubernetes kind or HTTP.
//!
//! ```
//! use store::{Embedded, Op, Options, Revision, Store};
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let dir = tempfile::tempdir().unwrap();
//! let store = Embedded::open(&dir.path().join("state.redb"), Options::default()).unwrap();
//! let mut watch = store.watch("/registry/pods/", Revision(0)).await.unwrap();
//! let written = store.write(vec![Op::create("/registry/pods/default/a", "{}")]).await.unwrap();
//! let delivery = watch.next().await.unwrap();
//! assert_eq!(delivery.events[0].revision, written);
//! assert_eq!(delivery.through, written);
//! # });
//! ```

mod cache;
mod contract;
mod cursor;
mod embedded;
mod entry;
mod etcd;
mod memory;
mod pending;
mod quota;
mod seal;

pub use contract::{
    BATCH_MAX, Condition, Delivery, Effect, ListRequest, Listing, Op, OpenError, ReadError, Store, Watch, WatchError,
    WriteError,
};
pub use embedded::{Embedded, Options};
pub use entry::{Change, Entry, Event, Revision};
pub use etcd::{Etcd, EtcdOptions};
pub use memory::Memory;
pub use quota::{Size, making_room, sparing_the_reserve};
pub use seal::{Opened, Plain, Seal, SealError};

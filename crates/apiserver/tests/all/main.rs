//! The API server as its callers see it: over a temporary store, mostly called
//! in process. One program: twenty would be linked twenty times.
#![allow(clippy::unwrap_used, reason = "a test that can not go on fails")]

mod accounts;
mod admission;
mod apply;
mod audit;
mod connections;
mod cost;
mod deleting;
mod discovery;
mod encryption;
mod etcd;
#[path = "../../../store/tests/support/etcd.rs"]
mod etcd_server;
mod eviction;
mod fairness;
mod fixture;
mod judged;
mod kinds;
mod lists;
mod metadata;
mod namespaces;
mod objects;
mod openapi;
mod pki;
mod priorities;
mod raw;
mod rbac;
mod readable;
mod reads;
mod relaying;
mod reviews;
mod routes;
mod scale;
mod services;
mod streams;
mod tls;
mod upstream;
mod versions;
mod wire;

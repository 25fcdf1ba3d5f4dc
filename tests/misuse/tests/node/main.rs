//! Hostile pods against a node. The attacks of one file share an instance, one
//! after the other.

mod budgets;
mod disk;
mod escapes;
mod exhaustion;
mod identity;
mod images;
mod network;
mod strangers;
mod streams;

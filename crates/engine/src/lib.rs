//! The embedded runtime behind the `cri` contract.

pub mod images;
pub mod network;
pub mod rootfs;

//! The embedded runtime behind the `cri` contract: real, isolated containers
//! with nothing installed.
//!
//! Each pod has a monitor process of its own (crate `shim`) that outlives this
//! one; what must not be lost is on disk before anyone is told. Never: pod
//! semantics (restarts, probes, phases).
//!
//! Read in this order: `engine` (open, recover, destroy), `sandbox` and
//! `container` (the verbs), `table` (what is known), `launch` (what a
//! container becomes), then the machinery below.
//!
//! ```no_run
//! # async fn example(config: engine::Config) -> Result<(), Box<dyn std::error::Error>> {
//! use cri::Runtime;
//! let ids = ambient::Ids::new(ambient::Rng::from_os());
//! let engine = engine::Engine::open(config, ambient::Clock::system(), ids).await?;
//! println!("{} sandboxes were here already", engine.sandboxes(None).await?.len());
//! # Ok(())
//! # }
//! ```

mod anonymous;
mod cgroups;
mod config;
mod container;
mod devices;
mod engine;
mod etc;
mod exec;
mod forward;
mod gates;
mod labels;
mod launch;
mod line;
mod open_files;
mod pod_network;
mod records;
mod recovery;
mod remains;
mod sandbox;
mod seccomp;
mod shim_client;
mod signals;
mod streams;
mod sys;
mod sysctls;
mod table;
mod usage;

pub mod images;
pub mod network;
pub mod rootfs;

pub use config::{Config, EngineError};
pub use engine::Engine;
pub use open_files::raise_open_files;
pub use records::layers_in_use;
pub use remains::clear_remains;

//! Whether a pod and a node go together: node selection, taints, host ports.
//! The scheduler asks before it binds, the node agent again before it runs.

mod affinity;
pub mod conditions;
mod ports;
mod taint;

pub use affinity::{NodeFace, NodeSelector, Wishes};
pub use ports::{HostPort, host_ports};
pub use taint::{Effect, Taint, Toleration, is_tolerated};

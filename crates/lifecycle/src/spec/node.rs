//! Reads a Node object.

use objects::Quantity;
use objects::api::core::v1::Node;
use objects::placement::{Effect, Taint};

use crate::node::NodeInfo;

impl NodeInfo {
    pub fn parse(node: &Node) -> Self {
        let status = node.status.as_ref();
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let taints = taints.filter_map(|taint| {
            let value = taint.value.clone().unwrap_or_default();
            Some(Taint { key: taint.key.clone(), value, effect: Effect::parse(&taint.effect)? })
        });
        let allocatable = status.and_then(|status| status.allocatable.as_ref()).into_iter().flatten();
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: taints.collect(),
            allocatable: allocatable.map(|(name, text)| (name.clone(), Quantity::from(text))).collect(),
        }
    }
}

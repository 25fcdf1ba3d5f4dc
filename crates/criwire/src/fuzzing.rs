//! What the fuzz targets feed; in no build but theirs. Each answer is what a
//! message means to us, and what that means once we have told it.

use cri::{
    Container, ContainerConfig, ContainerStats, DiskUsage, Image, ImageFs, NamespaceMode, RegistryAuth, Sandbox,
    SandboxConfig, SandboxId, SandboxState, SandboxStats,
};
use prost::Message;

use crate::convert::{container, image, sandbox, stats};
use crate::v1;

pub type Twice<T> = Option<(T, Option<T>)>;

/// Over the wire and back.
fn sent<M: Message + Default>(message: &M) -> Option<M> {
    read(&message.encode_to_vec())
}

fn read<M: Message + Default>(bytes: &[u8]) -> Option<M> {
    M::decode(bytes).ok()
}

pub fn container_config(bytes: &[u8]) -> Twice<ContainerConfig> {
    let heard = container::config_from_wire(read(bytes)?).ok()?;
    let told = container::config_to_wire(&heard, v1::NamespaceOption::default()).ok();
    let again = told.and_then(|told| container::config_from_wire(sent(&told)?).ok());
    Some((heard, again))
}

pub fn sandbox_config(bytes: &[u8]) -> Twice<SandboxConfig> {
    let heard = sandbox::config_from_wire(read(bytes)?).ok()?;
    let told = sandbox::config_to_wire(&heard, heard.cgroup_parent.clone());
    let again = sent(&told).and_then(|told| sandbox::config_from_wire(told).ok());
    Some((heard, again))
}

pub fn container_status(bytes: &[u8]) -> Twice<Container> {
    let read_as = |wire| container::status_from_wire(wire, SandboxId::from("s"), "u".to_owned()).ok();
    let heard = read_as(read(bytes)?)?;
    let again = sent(&container::status_to_wire(&heard)).and_then(read_as);
    Some((heard, again))
}

pub fn sandbox_status(bytes: &[u8]) -> Twice<Sandbox> {
    let heard = sandbox::status_from_wire(read(bytes)?).ok()?;
    let again = sent(&sandbox::status_to_wire(&heard)).and_then(|told| sandbox::status_from_wire(told).ok());
    Some((heard, again))
}

pub fn image(bytes: &[u8]) -> Twice<Image> {
    let heard = image::from_wire(read(bytes)?);
    let again = sent(&image::to_wire(&heard)).map(image::from_wire);
    Some((heard, again))
}

pub fn auth(bytes: &[u8]) -> Twice<RegistryAuth> {
    let heard = image::auth_from_wire(read(bytes)?)?;
    let again = sent(&image::auth_to_wire(heard.clone())).and_then(image::auth_from_wire);
    Some((heard, again))
}

pub fn disk(bytes: &[u8]) -> Twice<ImageFs> {
    let heard = image::disk_from_wire(read(bytes)?);
    let again = sent(&image::disk_to_wire(&heard, 0)).map(image::disk_from_wire);
    Some((heard, again))
}

pub fn container_stats(bytes: &[u8]) -> Twice<ContainerStats> {
    let heard = stats::container_from_wire(read(bytes)?, "u".to_owned())?;
    let attributes = v1::ContainerAttributes {
        id: heard.id.0.clone(),
        metadata: Some(v1::ContainerMetadata { name: heard.name.clone(), attempt: 0 }),
        ..Default::default()
    };
    let told = sent(&stats::container_to_wire(&heard, attributes));
    let again = told.and_then(|told| stats::container_from_wire(told, "u".to_owned()));
    Some((heard, again))
}

pub fn sandbox_stats(bytes: &[u8]) -> Twice<SandboxStats> {
    let heard = stats::sandbox_from_wire(read(bytes)?)?;
    let of = Sandbox {
        id: heard.id.clone(),
        meta: cri::PodMeta { name: String::new(), namespace: String::new(), uid: heard.pod_uid.clone(), attempt: 0 },
        state: SandboxState::Ready,
        created_at: heard.usage.at,
        network: NamespaceMode::Pod,
        ips: Vec::new(),
        labels: Default::default(),
        annotations: Default::default(),
    };
    let told = sent(&stats::sandbox_to_wire(&heard, &of, Vec::new()));
    assert_eq!(heard.disk, DiskUsage::default(), "the messages have no place for it");
    Some((heard, told.and_then(stats::sandbox_from_wire)))
}

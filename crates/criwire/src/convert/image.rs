//! Images, both ways. Pure.

use cri::{DiskUsage, Image, ImageFs, ImageUser, RegistryAuth};

use crate::v1;

pub(crate) fn spec(reference: &str) -> v1::ImageSpec {
    v1::ImageSpec { image: reference.to_owned(), user_specified_image: reference.to_owned(), ..Default::default() }
}

pub(crate) fn to_wire(image: &Image) -> v1::Image {
    let (uid, username) = match &image.user {
        None => (None, String::new()),
        Some(ImageUser::Uid(uid)) => (Some(v1::Int64Value { value: i64::from(*uid) }), String::new()),
        Some(ImageUser::Name(name)) => (None, name.clone()),
    };
    v1::Image {
        id: image.id.clone(),
        repo_tags: image.repo_tags.clone(),
        repo_digests: image.repo_digests.clone(),
        size: image.size_bytes,
        uid,
        username,
        spec: None,
        pinned: image.is_pinned,
    }
}

pub(crate) fn from_wire(wire: v1::Image) -> Image {
    let uid = wire.uid.and_then(|uid| u32::try_from(uid.value).ok());
    let user = match (uid, wire.username) {
        // Runtimes say 0 of images that say nothing.
        (Some(0) | None, name) => Some(name).filter(|name| !name.is_empty()).map(ImageUser::Name),
        (Some(uid), _) => Some(ImageUser::Uid(uid)),
    };
    Image {
        id: wire.id,
        repo_tags: wire.repo_tags,
        repo_digests: wire.repo_digests,
        size_bytes: wire.size,
        user,
        is_pinned: wire.pinned,
    }
}

pub(crate) fn auth_to_wire(auth: RegistryAuth) -> v1::AuthConfig {
    match auth {
        RegistryAuth::Basic { username, password } => v1::AuthConfig { username, password, ..Default::default() },
        RegistryAuth::IdentityToken(identity_token) => v1::AuthConfig { identity_token, ..Default::default() },
        RegistryAuth::Bearer(registry_token) => v1::AuthConfig { registry_token, ..Default::default() },
    }
}

pub(crate) fn auth_from_wire(wire: v1::AuthConfig) -> Option<RegistryAuth> {
    let v1::AuthConfig { username, password, identity_token, registry_token } = wire;
    match () {
        () if !identity_token.is_empty() => Some(RegistryAuth::IdentityToken(identity_token)),
        () if !registry_token.is_empty() => Some(RegistryAuth::Bearer(registry_token)),
        () if !username.is_empty() => Some(RegistryAuth::Basic { username, password }),
        () => None,
    }
}

pub(crate) fn disk_to_wire(fs: &ImageFs, timestamp: i64) -> v1::FilesystemUsage {
    v1::FilesystemUsage {
        timestamp,
        fs_id: Some(v1::FilesystemIdentifier { mountpoint: fs.mount_point.display().to_string() }),
        used_bytes: Some(v1::UInt64Value { value: fs.used.bytes }),
        inodes_used: Some(v1::UInt64Value { value: fs.used.inodes }),
    }
}

pub(crate) fn disk_from_wire(wire: v1::FilesystemUsage) -> ImageFs {
    ImageFs {
        mount_point: wire.fs_id.map(|id| id.mountpoint).unwrap_or_default().into(),
        used: used(wire.used_bytes, wire.inodes_used),
    }
}

pub(super) fn used(bytes: Option<v1::UInt64Value>, inodes: Option<v1::UInt64Value>) -> DiskUsage {
    DiskUsage { bytes: bytes.unwrap_or_default().value, inodes: inodes.unwrap_or_default().value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_and_credentials_survive_the_wire() {
        let image = |user| Image {
            id: "sha256:0".into(),
            repo_tags: vec!["a:1".into()],
            repo_digests: vec!["a@sha256:1".into()],
            size_bytes: 7,
            user,
            is_pinned: true,
        };
        for image in [None, Some(ImageUser::Uid(33)), Some(ImageUser::Name("web".into()))].map(image) {
            assert_eq!(from_wire(to_wire(&image)), image);
        }
        let basic = RegistryAuth::Basic { username: "u".into(), password: "p".into() };
        for auth in [basic, RegistryAuth::IdentityToken("i".into()), RegistryAuth::Bearer("b".into())] {
            let wire = auth_to_wire(auth.clone());
            assert!(!format!("{wire:?}").contains('"'), "no secret is shown");
            assert_eq!(auth_from_wire(wire), Some(auth));
        }
        assert_eq!(auth_from_wire(v1::AuthConfig::default()), None);
    }
}

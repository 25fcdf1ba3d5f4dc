//! Images that are nothing but a name.

use crate::Image;

/// By its id or one of its digests.
pub(super) fn is_named(image: &Image, reference: &str) -> bool {
    image.id == reference || image.repo_digests.iter().any(|digest| digest == reference)
}

pub(super) fn image_named(reference: &str) -> Image {
    let digest: u64 = reference
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let digest = format!("sha256:{digest:064x}");
    let repository = reference.rsplit_once(':').map_or(reference, |(repository, _)| repository);
    Image {
        repo_digests: vec![format!("{repository}@{digest}")],
        repo_tags: vec![reference.to_owned()],
        id: digest,
        size_bytes: 1_000_000,
        user: None,
        is_pinned: false,
    }
}

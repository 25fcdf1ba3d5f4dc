//! Images as volumes (LC-315). That they are here is seen to before a container
//! starts, as for its own image.

use std::path::PathBuf;

use cri::Mount;
use objects::api::core::v1::{ImageVolumeSource, VolumeMount};

use crate::container::with_tag;
use crate::ctx::Ctx;

/// By its id: what was got for this start, wherever the name leads next.
pub(super) async fn mount(
    ctx: &Ctx,
    source: &ImageVolumeSource,
    mount: &VolumeMount,
    part: Option<PathBuf>,
) -> Result<Mount, String> {
    let reference = source.reference.as_deref().unwrap_or_default();
    let failed = |error: &dyn std::fmt::Display| format!("failed to get image {reference:?} of volume: {error}");
    let image = ctx.runtime.image(&with_tag(reference)).await.map_err(|error| failed(&error))?;
    let image = image.ok_or_else(|| failed(&"it is not present any more"))?;
    Ok(Mount { image: Some(image.id), sub_path: part, ..Mount::new("", &mount.mount_path, true) })
}

//! Images.

use crate::subject::Subject;
use crate::world::IMAGE;

pub(crate) async fn images_are_found_by_every_name(subject: &Subject) {
    let runtime = &subject.runtime;
    let image = runtime.image(IMAGE).await.unwrap().unwrap();
    assert_eq!(image.repo_tags, [IMAGE]);
    assert!(image.id.starts_with("sha256:") && image.size_bytes > 0, "{image:?}");
    assert_eq!(runtime.image(&image.id).await.unwrap().as_ref(), Some(&image));
    for digest in &image.repo_digests {
        assert_eq!(runtime.image(digest).await.unwrap().as_ref(), Some(&image));
    }
    assert_eq!(runtime.image("docker.io/library/nowhere:1").await.unwrap(), None);
    assert!(runtime.images().await.unwrap().contains(&image));
}

pub(crate) async fn removed_images_are_gone(subject: &Subject) {
    let runtime = &subject.runtime;
    runtime.remove_image(IMAGE).await.unwrap();
    assert_eq!(runtime.image(IMAGE).await.unwrap(), None);
    let left = runtime.images().await.unwrap();
    assert!(!left.iter().any(|image| image.repo_tags.iter().any(|tag| tag == IMAGE)), "{left:?}");
    runtime.remove_image(IMAGE).await.unwrap();
}

pub(crate) async fn what_images_use_is_told(subject: &Subject) {
    let fs = subject.runtime.image_fs().await.unwrap();
    assert!(fs.mount_point.is_absolute(), "{fs:?}");
}

//! Stacks as the kernel will read them, and as it really reads them.

use super::*;

fn layers(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| Path::new("/store/layers").join(name)).collect()
}

#[test]
fn the_topmost_layer_comes_first_and_names_are_relative() {
    let overlay = overlay(&layers(&["bottom", "middle", "top"]), Path::new("/c/upper"), Path::new("/c/work")).unwrap();
    assert_eq!(overlay.base, Path::new("/store/layers"));
    assert_eq!(overlay.options, "lowerdir=top:middle:bottom,upperdir=/c/upper,workdir=/c/work");
}

#[test]
fn separators_within_names_are_escaped() {
    let overlay = overlay(&layers(&["a:b", "c,d"]), Path::new(r"/c:\u"), Path::new("/c,w")).unwrap();
    assert_eq!(overlay.options, r"lowerdir=c\,d:a\:b,upperdir=/c\:\\u,workdir=/c\,w");
}

#[test]
fn a_stack_elsewhere_keeps_absolute_names() {
    let stack = vec![PathBuf::from("/one/a"), PathBuf::from("/two/b")];
    let overlay = overlay(&stack, Path::new("/u"), Path::new("/w")).unwrap();
    assert_eq!(overlay.options, "lowerdir=/two/b:a,upperdir=/u,workdir=/w");
}

#[test]
fn no_layers_and_too_many_layers_are_told_apart() {
    let (upper, work) = (Path::new("/u"), Path::new("/w"));
    assert_eq!(overlay(&[], upper, work), Err(RootfsError::NoLayers));
    let digest = "d".repeat(64);
    let sixty = vec![Path::new("/store/layers").join(&digest); 60];
    assert!(overlay(&sixty, upper, work).is_ok());
    let seventy = vec![Path::new("/store/layers").join(&digest); 70];
    assert_eq!(overlay(&seventy, upper, work), Err(RootfsError::TooLong { bytes: 9 + 70 * 65 - 1 + 12 + 11 }));
}

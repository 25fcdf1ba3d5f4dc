//! Spellings people use, and what becomes of them.

use super::*;

fn canonical(text: &str) -> String {
    Reference::parse(text).map(|r| r.to_string()).unwrap_or_else(|err| err.to_string())
}

#[test]
fn short_names_get_the_defaults_of_docker() {
    let digest = format!("sha256:{}", "a".repeat(64));
    for (text, expected) in [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1.36", "docker.io/library/busybox:1.36"),
        ("library/busybox", "docker.io/library/busybox:latest"),
        ("docker.io/busybox:1.36", "docker.io/library/busybox:1.36"),
        ("index.docker.io/busybox", "docker.io/library/busybox:latest"),
        ("someone/thing", "docker.io/someone/thing:latest"),
        ("registry.k8s.io/busybox:1.27.2", "registry.k8s.io/busybox:1.27.2"),
        ("registry.k8s.io/e2e-test-images/agnhost:2.53", "registry.k8s.io/e2e-test-images/agnhost:2.53"),
        ("localhost/app", "localhost/app:latest"),
        ("localhost:5000/app:v1", "localhost:5000/app:v1"),
        ("[::1]:5000/app", "[::1]:5000/app:latest"),
        ("a__b-c--d.e/f_g", "docker.io/a__b-c--d.e/f_g:latest"),
    ] {
        // `a__b-c--d.e` has a dot, so it is a domain by Docker's rule and an invalid one.
        let expected = if text.starts_with("a__b") {
            "couldn't parse image name \"a__b-c--d.e/f_g\": invalid reference format"
        } else {
            expected
        };
        assert_eq!(canonical(text), expected, "{text}");
    }
    assert_eq!(canonical(&format!("busybox@{digest}")), format!("docker.io/library/busybox@{digest}"));
    assert_eq!(canonical(&format!("busybox:1.36@{digest}")), format!("docker.io/library/busybox@{digest}"));
}

#[test]
fn names_no_registry_accepts_are_refused() {
    for text in [
        "",
        ":",
        "/",
        "a//b",
        "/busybox",
        "busybox:",
        "busybox@",
        "busybox:a b",
        "-a",
        "a-",
        "a..b",
        "a___b",
        "a b",
        "busybox@sha256:abc",
        "busybox@md5:aaaa",
        "../etc",
        "a/../b",
        "x:5000:1/a",
        "bad_host.io/a",
        "a:é",
    ] {
        let err = Reference::parse(text).unwrap_err();
        assert!(matches!(&err, ImageError::InvalidReference { reference, .. } if reference == text), "{text}: {err}");
        assert!(err.to_string().ends_with("invalid reference format"), "{text}: {err}");
    }
    assert_eq!(
        canonical("BusyBox:1"),
        "couldn't parse image name \"BusyBox:1\": invalid reference format: \
         repository name (library/BusyBox) must be lowercase"
    );
    assert!(canonical(&"a".repeat(64)).ends_with("cannot specify 64-byte hexadecimal strings"));
    assert!(canonical(&"a".repeat(250)).ends_with("must not be more than 255 characters"));
    assert!(Reference::parse(&format!("busybox:{}", "t".repeat(129))).is_err());
}

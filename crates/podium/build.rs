//! Links the binary at a fixed address (docs/decisions/0007).
//!
//! Every pod has a shim process of this same binary. A position-independent
//! one makes the loader write a megabyte of relocated pointers, privately,
//! into each of them.

fn main() {
    println!("cargo::rustc-link-arg-bins=-no-pie");
    println!("cargo::rerun-if-changed=build.rs");
}

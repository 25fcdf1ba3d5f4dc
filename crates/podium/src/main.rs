//! The `podium` binary.
fn main() {}

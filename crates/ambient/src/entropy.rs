//! Bytes nobody can guess, for keys and nonces.

/// From the operating system, never from a seed: two programs, or one that
/// was started twice, do not meet here.
#[expect(clippy::disallowed_methods, reason = "one of the two places that may ask")]
pub fn unguessable<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel always has randomness after boot");
    bytes
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_differ_each_time() {
        assert_ne!(super::unguessable::<16>(), super::unguessable::<16>());
    }
}

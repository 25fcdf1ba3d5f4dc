//! Seeded randomness: one seed per process, split per component.

/// A small, fast, reproducible generator (SplitMix64). Not for secrets.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A seed from the operating system.
    #[expect(clippy::disallowed_methods, reason = "one of the two places that may ask")]
    pub fn from_os() -> Self {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).expect("the kernel always has randomness after boot");
        Self::seeded(u64::from_le_bytes(seed))
    }

    /// The same seed gives the same numbers, always.
    pub const fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// An independent generator for one component.
    pub fn split(&mut self) -> Self {
        Self::seeded(self.next_u64())
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`. The bias is below 2⁻³² for every bound we use.
    pub fn below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0, "no number lies below zero");
        u32::try_from(((self.next_u64() >> 32) * u64::from(bound)) >> 32).expect("shifted down to 32 bits")
    }

    /// A fraction in `0.0..1.0`, for jitter.
    pub fn fraction(&mut self) -> f64 {
        f64::from(self.below(1 << 30)) / f64::from(1 << 30)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_reproducible_and_splits_differ() {
        let (mut a, mut b) = (Rng::seeded(7), Rng::seeded(7));
        assert_eq!(a.next_u64(), b.next_u64());
        let mut child = a.split();
        assert_ne!(child.next_u64(), a.next_u64());
        assert!((0..1000).all(|_| a.below(27) < 27));
    }
}

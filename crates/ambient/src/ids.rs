//! Identifiers: UIDs, name suffixes and hexadecimal ids.

use std::sync::{Arc, Mutex};

use crate::Rng;

/// Mints identifiers. Cheap to clone; clones share one sequence.
#[derive(Debug, Clone)]
pub struct Ids(Arc<Mutex<Rng>>);

/// The alphabet of generated name suffixes: no vowels and no look-alikes, so
/// no words appear by accident (API: generateName).
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

impl Ids {
    pub fn new(rng: Rng) -> Self {
        Self(Arc::new(Mutex::new(rng)))
    }

    /// A random (version 4) UUID in its usual spelling.
    pub fn uid(&self) -> String {
        let (high, low) = (self.draw(), self.draw());
        let high = (high & !0xF000) | 0x4000;
        let low = (low & !(0b11 << 62)) | (0b10 << 62);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xFFFF,
            high & 0xFFFF,
            low >> 48,
            low & 0xFFFF_FFFF_FFFF
        )
    }

    /// Five characters to append to a `generateName`.
    pub fn suffix(&self) -> String {
        let mut rng = self.lock();
        (0..5).map(|_| char::from(SUFFIX_ALPHABET[rng.below(27) as usize])).collect()
    }

    /// 64 hexadecimal digits, the shape of container and sandbox ids.
    pub fn hex64(&self) -> String {
        let mut rng = self.lock();
        (0..4).map(|_| format!("{:016x}", rng.next_u64())).collect()
    }

    fn draw(&self) -> u64 {
        self.lock().next_u64()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Rng> {
        self.0.lock().expect("ids are never poisoned: no code panics while holding them")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_their_customary_shapes() {
        let ids = Ids::new(Rng::seeded(1));
        let uid = ids.uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(&uid[14..15], "4");
        assert!("89ab".contains(&uid[19..20]));
        assert_eq!(ids.suffix().len(), 5);
        assert_eq!(ids.hex64().len(), 64);
        assert_ne!(ids.uid(), ids.uid());
    }
}

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
        let (high, low) = {
            let mut rng = self.lock();
            (rng.next_u64(), rng.next_u64())
        };
        let high = (high & !0xF000) | 0x4000;
        let low = (low & !(0b11 << 62)) | (0b10 << 62);
        // By hand, because every request gets one.
        let mut text = String::with_capacity(36);
        for (index, byte) in high.to_be_bytes().into_iter().chain(low.to_be_bytes()).enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            for digit in [byte >> 4, byte & 0xF] {
                text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
            }
        }
        text
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

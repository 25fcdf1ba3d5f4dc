//! Capabilities by name and by number.

use crate::wire::CAPABILITIES;

/// Names as a bit mask; unknown names have no bit.
pub(crate) fn mask(names: &[String]) -> u64 {
    names.iter().fold(0, |mask, name| mask | bit(name))
}

pub(crate) fn bit(name: &str) -> u64 {
    CAPABILITIES.iter().position(|known| *known == name).map_or(0, |number| 1 << number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_agree_with_the_kernel() {
        assert_eq!(mask(&["CAP_SYS_ADMIN".into(), "CAP_CHOWN".into(), "CAP_NOPE".into()]), (1 << 21) | 1);
        assert_eq!([bit("CAP_MKNOD"), bit("CAP_CHECKPOINT_RESTORE")], [1 << 27, 1 << 40]);
    }
}

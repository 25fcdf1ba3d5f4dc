//! Pure. `$(NAME)` in texts (LC-322), and how much text a program may be given.
//!
//! A reference to a variable that refers to others doubles with every step, so
//! nothing is built before it is known to fit.

use std::collections::BTreeSet;

/// One string of a new program, its NUL included: `MAX_ARG_STRLEN`, 32 pages.
pub(crate) const STRING_BYTES_MAX: usize = 128 << 10;
/// All of them with a pointer each: `ARG_MAX`, a quarter of the usual stack.
pub(crate) const TOTAL_BYTES_MAX: usize = 2 << 20;
/// `PATH_MAX`, for what becomes one.
const PATH_BYTES_MAX: usize = 4096;
/// A string's NUL and its pointer.
const STRING_OVERHEAD: usize = 1 + size_of::<usize>();

/// What is left of what a program's environment and arguments may come to.
/// What a later value overrides has been built too, so it counts as well.
pub(crate) struct Budget {
    left: usize,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { left: TOTAL_BYTES_MAX }
    }

    /// Counts one string of so many bytes; `what` names it if it is too long.
    pub(crate) fn take(&mut self, bytes: usize, what: impl Fn() -> String) -> Result<(), String> {
        if bytes >= STRING_BYTES_MAX {
            return Err(too_long(&what(), STRING_BYTES_MAX));
        }
        self.left =
            self.left.checked_sub(bytes + STRING_OVERHEAD).ok_or_else(|| too_long(ENVIRONMENT, TOTAL_BYTES_MAX))?;
        Ok(())
    }

    /// An argument of a command.
    pub(crate) fn argument<'a>(
        &mut self,
        text: &str,
        known: impl Fn(&str) -> Option<&'a String>,
    ) -> Result<String, String> {
        let what = || format!("argument {:?}", beginning(text));
        let expanded = expand(text, known, STRING_BYTES_MAX).ok_or_else(|| too_long(&what(), STRING_BYTES_MAX))?;
        self.take(expanded.len(), what)?;
        Ok(expanded)
    }
}

const ENVIRONMENT: &str = "environment and arguments of the container";

/// `E2BIG` in the kernel's words, and what to look at.
pub(crate) fn too_long(what: &str, bytes_max: usize) -> String {
    format!("argument list too long: {what}: more than {bytes_max} bytes")
}

/// Said before anything is read that could not be passed on.
pub(crate) fn all_too_long() -> String {
    too_long(ENVIRONMENT, TOTAL_BYTES_MAX)
}

fn beginning(text: &str) -> String {
    text.chars().take(32).collect()
}

/// `$(NAME)` of known variables is replaced, `$$` is one `$`, all else stays.
/// Nothing if that has more than so many bytes.
pub(crate) fn expand<'a>(text: &str, known: impl Fn(&str) -> Option<&'a String>, bytes_max: usize) -> Option<String> {
    let mut expanded = String::new();
    for piece in pieces(text) {
        let part = match piece {
            Piece::Text(text) => text,
            Piece::Reference { name, whole } => known(name).map_or(whole, String::as_str),
        };
        if expanded.len() + part.len() > bytes_max {
            return None;
        }
        expanded.push_str(part);
    }
    Some(expanded)
}

/// A path where every reference must lead to something, as in `subPathExpr`.
pub(crate) fn expand_path<'a>(text: &str, known: impl Fn(&str) -> Option<&'a String>) -> Result<String, String> {
    let names = pieces(text).filter_map(|piece| match piece {
        Piece::Reference { name, .. } => Some(name),
        Piece::Text(_) => None,
    });
    let missing: BTreeSet<&str> = names.filter(|name| known(name).is_none_or(String::is_empty)).collect();
    if !missing.is_empty() {
        return Err(format!("missing value for {}", missing.into_iter().collect::<Vec<_>>().join(", ")));
    }
    expand(text, known, PATH_BYTES_MAX).ok_or_else(|| {
        format!("file name too long: subPathExpr {:?}: more than {PATH_BYTES_MAX} bytes", beginning(text))
    })
}

enum Piece<'a> {
    Text(&'a str),
    /// `whole` is as it was written.
    Reference {
        name: &'a str,
        whole: &'a str,
    },
}

/// Looks at every byte once: no reference is searched for behind the last `)`.
fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let last_close = text.rfind(')').map_or(0, |at| at + 1);
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
        let Some(after) = rest.strip_prefix('$') else {
            let plain = rest.find('$').map_or(rest, |end| &rest[..end]);
            at += plain.len();
            return Some(Piece::Text(plain));
        };
        let inner = after.strip_prefix('(').filter(|_| at < last_close);
        if let Some((name, _)) = inner.and_then(|inner| inner.split_once(')')) {
            let whole = &rest[..name.len() + "$()".len()];
            at += whole.len();
            return Some(Piece::Reference { name, whole });
        }
        at += if after.starts_with('$') { 2 } else { 1 };
        Some(Piece::Text("$"))
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use super::*;

    fn known() -> BTreeMap<String, String> {
        BTreeMap::from([("A".to_owned(), "1".to_owned()), ("LONG".to_owned(), "x".repeat(100_000))])
    }

    #[test]
    fn lc_322_references_expand_and_dollars_escape() {
        let known = known();
        let cases = [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$(B)", "$(B)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$A $", "$A $"),
            ("$(A", "$(A"),
            ("$(A)$(A", "1$(A"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(expand(text, |name| known.get(name), 100).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn lc_322_what_does_not_fit_is_not_built() {
        let known = known();
        assert_eq!(expand("$(A)$(A)", |name| known.get(name), 2).as_deref(), Some("11"));
        let asked = Cell::new(0);
        let count = |name: &str| {
            asked.set(asked.get() + 1);
            known.get(name)
        };
        assert_eq!(expand(&"$(LONG)".repeat(5_000), count, STRING_BYTES_MAX), None);
        assert_eq!(asked.get(), 2, "the second does not fit, the others are not looked at");
        let mut budget = Budget::new();
        let refused = budget.argument("$(LONG)$(LONG)", |name| known.get(name)).unwrap_err();
        assert_eq!(refused, "argument list too long: argument \"$(LONG)$(LONG)\": more than 131072 bytes");
        let fitting = (0..).take_while(|_| budget.argument("$(LONG)", |name| known.get(name)).is_ok()).count();
        assert_eq!(fitting, TOTAL_BYTES_MAX / (100_000 + STRING_OVERHEAD));
    }

    #[test]
    fn lc_322_half_a_million_open_brackets_are_read_once() {
        let text = "$(".repeat(500_000);
        assert_eq!(expand(&text, |_| None, text.len()), Some(text.clone()));
        assert_eq!(pieces(&text).count(), 1_000_000);
    }

    #[test]
    fn a_path_has_a_value_for_every_reference_and_is_a_path() {
        let known = known();
        assert_eq!(expand_path("d/$(A)", |name| known.get(name)).as_deref(), Ok("d/1"));
        let missing = expand_path("$(C)/$(B)", |name| known.get(name));
        assert_eq!(missing, Err("missing value for B, C".to_owned()));
        assert!(expand_path("$(LONG)", |name| known.get(name)).unwrap_err().starts_with("file name too long"));
    }
}

//! Licence expressions: `MIT OR (Apache-2.0 AND ISC)`.

/// Whether what is allowed suffices for the expression. Old manifests write
/// `/` for `OR`.
pub(super) fn suffices(expression: &str, is_allowed: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    let holds = either(&mut rest, is_allowed);
    holds && rest.is_empty()
}

fn either(words: &mut &[&str], is_allowed: &dyn Fn(&str) -> bool) -> bool {
    let mut holds = both(words, is_allowed);
    while let [first, rest @ ..] = *words
        && *first == "OR"
    {
        *words = rest;
        holds |= both(words, is_allowed);
    }
    holds
}

fn both(words: &mut &[&str], is_allowed: &dyn Fn(&str) -> bool) -> bool {
    let mut holds = one(words, is_allowed);
    while let [first, rest @ ..] = *words
        && *first == "AND"
    {
        *words = rest;
        holds &= one(words, is_allowed);
    }
    holds
}

fn one(words: &mut &[&str], is_allowed: &dyn Fn(&str) -> bool) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let holds = either(words, is_allowed);
            let [")", rest @ ..] = *words else { return false };
            *words = rest;
            holds
        }
        [name, "WITH", exception, rest @ ..] => {
            *words = rest;
            is_allowed(&format!("{name} WITH {exception}"))
        }
        [name, rest @ ..] => {
            *words = rest;
            is_allowed(name)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_spdx_says() {
        let allowed = |name: &str| ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].contains(&name);
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/Apache-2.0",
            "ISC AND (Apache-2.0 OR ISC)",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0",
            "GPL-3.0 AND ISC OR MIT",
        ] {
            assert!(suffices(good, &allowed), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT MIT", "MIT AND (GPL-3.0 OR Apache-2.0)"] {
            assert!(!suffices(bad, &allowed), "{bad}");
        }
    }
}

//! Pure. Files that containers leave for each other's environment
//! (`fileKeyRef`): lines `NAME='value'`, a small part of what a shell
//! understands and never anything else.

/// The value of `key`. What is written after it is not looked at.
pub(super) fn lookup(text: &str, key: &str) -> Result<Option<String>, String> {
    let mut rest = text;
    let mut line = 1;
    while !rest.is_empty() {
        let Some((name, value, after)) = entry(rest).map_err(|problem| format!("line {line}: {problem}"))? else {
            return Ok(None);
        };
        if name == key {
            return Ok(Some(value.to_owned()));
        }
        line += rest[..rest.len() - after.len()].matches('\n').count();
        rest = after;
    }
    Ok(None)
}

/// The first variable and what follows its line; nothing at the end.
fn entry(text: &str) -> Result<Option<(&str, &str, &str)>, &'static str> {
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Ok(None);
        }
        let Some(comment) = rest.strip_prefix('#') else { break };
        rest = comment.split_once('\n').map_or("", |(_, after)| after);
    }
    let (name, after) = rest.split_once('=').ok_or("a variable must have the form NAME='value'")?;
    // On its own line: what stands on another is no part of it.
    let name = name.trim_end_matches(|c: char| c != '\n' && c.is_whitespace());
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err("a variable must have the form NAME='value'");
    }
    let quoted = after.trim_start_matches([' ', '\t']).strip_prefix('\'').ok_or("a value must be in single quotes")?;
    let (value, after) = quoted.split_once('\'').ok_or("a single quote is missing")?;
    let (tail, after) = after.split_once('\n').unwrap_or((after, ""));
    if !tail.trim().is_empty() {
        return Err("nothing may follow the closing quote");
    }
    Ok(Some((name, value, after)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_literally_from_single_quotes() {
        let text = "# comment\n\n  A='1'\nB = 'two # $HOME \\n'  \nMULTI='line1\nline2'\nEMPTY=''\n";
        let found = |key: &str| lookup(text, key).unwrap();
        assert_eq!(found("A").as_deref(), Some("1"));
        assert_eq!(found("B").as_deref(), Some("two # $HOME \\n"));
        assert_eq!(found("MULTI").as_deref(), Some("line1\nline2"));
        assert_eq!(found("EMPTY").as_deref(), Some(""));
        assert_eq!(found("C"), None);
    }

    #[test]
    fn what_a_shell_would_have_to_interpret_is_refused() {
        for (text, problem) in [
            ("A=1", "line 1: a value must be in single quotes"),
            ("X='1'\nA=\"1\"", "line 2: a value must be in single quotes"),
            ("X='1\n2'\nA='1", "line 3: a single quote is missing"),
            ("A='1''2'", "line 1: nothing may follow the closing quote"),
            ("A='1'$B", "line 1: nothing may follow the closing quote"),
            ("export A='1'", "line 1: a variable must have the form NAME='value'"),
            ("A", "line 1: a variable must have the form NAME='value'"),
            ("A\n='1'", "line 1: a variable must have the form NAME='value'"),
        ] {
            assert_eq!(lookup(text, "A"), Err(problem.to_owned()), "{text}");
        }
    }
}

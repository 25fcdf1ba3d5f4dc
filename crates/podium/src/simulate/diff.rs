//! What is different between two transcripts, line by line.

/// Lines of context around a change.
const CONTEXT: usize = 3;
/// Beyond this many pairs of lines the middle is shown as replaced whole.
const PAIRS_MAX: usize = 4_000_000;

enum Edit<'a> {
    Same(&'a str),
    Gone(&'a str),
    New(&'a str),
}

/// `-` is expected and missing, `+` is there and not expected.
pub(super) fn unified(expected: &str, actual: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), actual.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old[head..].iter().rev().zip(new[head..].iter().rev());
    let tail = rest.take_while(|(a, b)| a == b).count();
    let mut edits: Vec<Edit> = old[..head].iter().map(|line| Edit::Same(line)).collect();
    edits.extend(middle(&old[head..old.len() - tail], &new[head..new.len() - tail]));
    edits.extend(old[old.len() - tail..].iter().map(|line| Edit::Same(line)));
    render(&edits)
}

/// By the longest common subsequence.
fn middle<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Edit<'a>> {
    if old.len().saturating_mul(new.len()) > PAIRS_MAX {
        let gone = old.iter().map(|line| Edit::Gone(line));
        return gone.chain(new.iter().map(|line| Edit::New(line))).collect();
    }
    let mut length = vec![vec![0u32; new.len() + 1]; old.len() + 1];
    for (i, a) in old.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            length[i][j] = if a == b { length[i + 1][j + 1] + 1 } else { length[i + 1][j].max(length[i][j + 1]) };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut edits = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            edits.push(Edit::Same(old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && length[i + 1][j] >= length[i][j + 1]) {
            edits.push(Edit::Gone(old[i]));
            i += 1;
        } else {
            edits.push(Edit::New(new[j]));
            j += 1;
        }
    }
    edits
}

fn render(edits: &[Edit]) -> String {
    let changed: Vec<usize> = (0..edits.len()).filter(|at| !matches!(edits[*at], Edit::Same(_))).collect();
    let is_near = |at: usize| {
        let next = changed.partition_point(|changed| changed + CONTEXT < at);
        changed.get(next).is_some_and(|changed| *changed <= at + CONTEXT)
    };
    let mut text = String::from("--- expected\n+++ actual\n");
    let mut was_near = true;
    for (at, edit) in edits.iter().enumerate() {
        let is_near = is_near(at);
        if is_near && !was_near {
            text.push_str("@@\n");
        }
        was_near = is_near;
        match edit {
            _ if !is_near => {}
            Edit::Same(line) => text.push_str(&format!("  {line}\n")),
            Edit::Gone(line) => text.push_str(&format!("- {line}\n")),
            Edit::New(line) => text.push_str(&format!("+ {line}\n")),
        }
    }
    text
}

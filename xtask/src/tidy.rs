//! Rules the compiler cannot see. Each returns one line per problem.
//!
//! Read next: `edges` (who may depend on whom), `text` (what files must and
//! must not say), `size` (how long they may be).

mod edges;
mod size;
mod text;

use anyhow::Result;

use crate::clippy;
use crate::tree::Tree;

pub(crate) fn problems(tree: &Tree) -> Result<Vec<String>> {
    let mut problems = edges::problems(tree)?;
    problems.extend(clippy::problems(tree));
    problems.extend(size::problems(tree)?);
    problems.extend(text::problems(tree));
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_is_tidy() {
        let problems = problems(&Tree::of_workspace().unwrap()).unwrap();
        assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    }
}

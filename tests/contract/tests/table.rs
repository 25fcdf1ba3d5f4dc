//! The table in docs/runtimes.md: which case holds for which runtime.

use std::fmt::Write as _;

use expect_test::expect_file;

use crate::cases::{EXCEPT, NAMES};
use crate::subject::KINDS;

pub(crate) fn is_current() {
    for (name, ..) in EXCEPT {
        assert!(NAMES.contains(name), "{name} is no case");
    }
    expect_file!["../../../docs/runtimes.md"].assert_eq(&(INTRODUCTION.to_owned() + &table()));
}

fn table() -> String {
    let mut text =
        String::from("| case | fake | engine | `podium cri serve` | containerd 1.6 |\n|---|---|---|---|---|\n");
    let mut notes: Vec<&str> = Vec::new();
    for name in NAMES {
        let mut row = format!("| `{name}` |");
        for kind in KINDS {
            let except = EXCEPT.iter().find(|(case, except, _)| case == name && *except == kind);
            let cell = match except {
                None => "yes".to_owned(),
                Some((.., why)) => {
                    let number = notes.iter().position(|known| *known == *why).unwrap_or_else(|| {
                        notes.push(why);
                        notes.len() - 1
                    });
                    format!("{}", number + 1)
                }
            };
            let _ = write!(row, " {cell} |");
        }
        text += &(row + "\n");
    }
    text.push('\n');
    for (index, why) in notes.iter().enumerate() {
        let _ = writeln!(text, "{}. {why}", index + 1);
    }
    text
}

const INTRODUCTION: &str = include_str!("runtimes-introduction.md");

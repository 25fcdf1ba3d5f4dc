//! Splits the text of a label selector into tokens.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// Identifiers and values; also `in` and `notin`, which are only operators
    /// where an operator can stand.
    Word(String),
    Not,
    Equals,
    NotEquals,
    Greater,
    Less,
    Open,
    Close,
    Comma,
    /// Operator characters that are no operator, e.g. `=!`.
    Stray(String),
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Word(text) | Self::Stray(text) => text,
            Self::Not => "!",
            Self::Equals => "=",
            Self::NotEquals => "!=",
            Self::Greater => ">",
            Self::Less => "<",
            Self::Open => "(",
            Self::Close => ")",
            Self::Comma => ",",
            Self::End => "",
        })
    }
}

pub(super) struct Lexer<'a> {
    rest: &'a str,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    pub(super) fn peek(&self) -> Token {
        Self { rest: self.rest }.next()
    }

    pub(super) fn next(&mut self) -> Token {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let symbols = [
            ("==", Token::Equals),
            ("!=", Token::NotEquals),
            ("=", Token::Equals),
            ("!", Token::Not),
            (">", Token::Greater),
            ("<", Token::Less),
            ("(", Token::Open),
            (")", Token::Close),
            (",", Token::Comma),
        ];
        for (symbol, token) in symbols {
            if let Some(rest) = self.rest.strip_prefix(symbol) {
                // Characters that only extend an operator belong to it.
                if matches!(token, Token::Equals | Token::NotEquals) && rest.starts_with(['=', '!']) {
                    self.rest = &rest[1..];
                    return Token::Stray(format!("{symbol}{}", &rest[..1]));
                }
                self.rest = rest;
                return token;
            }
        }
        let end = self.rest.find([' ', '\t', '\r', '\n', '=', '!', '(', ')', ',', '>', '<']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if word.is_empty() { Token::End } else { Token::Word(word.to_owned()) }
    }
}

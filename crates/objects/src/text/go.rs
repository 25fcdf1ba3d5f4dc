//! JSON as Go's encoder writes it: upstream's tools compare bytes of documents
//! that they made themselves with bytes that came back (WL-139).

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::Formatter;

/// Without white space, and safe inside HTML: `<`, `>`, `&` and two separators
/// of lines are escaped.
pub fn to_json(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut out = Vec::with_capacity(256);
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Go))?;
    Ok(out)
}

struct Go;

impl Formatter for Go {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        let bytes = fragment.as_bytes();
        // Looked at without leaving early, which compilers turn into few steps:
        // nearly all text is as it is.
        let is_plain = |plain, byte: &u8| plain & !matches!(byte, b'<' | b'>' | b'&' | 0xe2);
        if bytes.iter().fold(true, is_plain) {
            return out.write_all(bytes);
        }
        let mut written = 0;
        for at in 0..bytes.len() {
            if let Some((escaped, length)) = escape(bytes, at) {
                out.write_all(&bytes[written..at])?;
                out.write_all(escaped)?;
                written = at + length;
            }
        }
        out.write_all(&bytes[written..])
    }

    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        out.write_all(float(value).as_bytes())
    }
}

/// The shortest digits that mean this number; very small and very large ones
/// with an exponent.
fn float(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        return if size < 1.0 { text } else { text.replace('e', "e+") };
    }
    value.to_string()
}

/// What stands in the place of the character that begins here, and how long
/// that character is.
fn escape(bytes: &[u8], at: usize) -> Option<(&'static [u8], usize)> {
    match bytes[at] {
        b'<' => Some((b"\\u003c", 1)),
        b'>' => Some((b"\\u003e", 1)),
        b'&' => Some((b"\\u0026", 1)),
        0xe2 => match bytes.get(at + 1..at + 3)? {
            [0x80, 0xa8] => Some((b"\\u2028", 3)),
            [0x80, 0xa9] => Some((b"\\u2029", 3)),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn wl_139_strings_are_escaped_as_go_does() {
        let doc =
            json!({"<k&>": ["a < b && b > c", "\u{2028}x\u{2029}", "\u{2027}é\u{2030}\u{7f}", "\u{8}\u{c}\u{1}\"\\/"]});
        let written = String::from_utf8(to_json(&doc).unwrap()).unwrap();
        let expected = "{\"\\u003ck\\u0026\\u003e\":[\"a \\u003c b \\u0026\\u0026 b \\u003e c\",\
            \"\\u2028x\\u2029\",\"\u{2027}é\u{2030}\u{7f}\",\"\\b\\f\\u0001\\\"\\\\/\"]}";
        assert_eq!(written, expected);
        assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), doc);
    }

    #[test]
    fn wl_139_numbers_are_written_as_go_does() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (0.1, "0.1"),
            (1e-6, "0.000001"),
            (9.99e-7, "9.99e-7"),
            (-1e-7, "-1e-7"),
            (5e-324, "5e-324"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (-1.5e21, "-1.5e+21"),
            (1.797_693_134_862_315_7e308, "1.7976931348623157e+308"),
            (123_456_789.123_456_79, "123456789.12345679"),
        ] {
            assert_eq!(String::from_utf8(to_json(&value).unwrap()).unwrap(), text);
        }
        assert_eq!(to_json(&f64::NAN).unwrap(), b"null");
    }
}

//! Prometheus' text format.

use std::fmt::Write as _;

use ambient::Timestamp;

use crate::meter::Histogram;

/// Metrics, one family after the other.
#[derive(Debug, Default)]
pub(super) struct Exposition(String);

/// Names and values, in the order they are shown: sorted by name.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Exposition {
    pub(super) fn counter(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "counter", help)
    }

    pub(super) fn gauge(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    pub(super) fn histogram(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "histogram", help)
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { text: &mut self.0, name }
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// The series of one name.
pub(super) struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Family<'_> {
    pub(super) fn is(&mut self, labels: Labels<'_>, value: impl Into<Number>) -> &mut Self {
        self.line("", labels, value.into(), None)
    }

    /// A value with the time it was measured at.
    pub(super) fn was(&mut self, labels: Labels<'_>, value: impl Into<Number>, at: Timestamp) -> &mut Self {
        self.line("", labels, value.into(), Some(at))
    }

    pub(super) fn buckets(&mut self, labels: Labels<'_>, histogram: &Histogram) -> &mut Self {
        for (bound, count) in histogram.bounds.iter().zip(&histogram.buckets) {
            let bound = bound.to_string();
            self.line("_bucket", &[labels, &[("le", bound.as_str())]].concat(), (*count).into(), None);
        }
        self.line("_bucket", &[labels, &[("le", "+Inf")]].concat(), histogram.count.into(), None);
        self.line("_sum", labels, histogram.sum.into(), None);
        self.line("_count", labels, histogram.count.into(), None)
    }

    fn line(&mut self, ending: &str, labels: Labels<'_>, value: Number, at: Option<Timestamp>) -> &mut Self {
        let _ = write!(self.text, "{}{ending}", self.name);
        for (index, (name, value)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"{}\"", escaped(value));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        match value {
            Number::Whole(value) => drop(write!(self.text, " {value}")),
            Number::Real(value) => drop(write!(self.text, " {value}")),
        }
        if let Some(at) = at {
            let _ = write!(self.text, " {}", at.as_millisecond());
        }
        self.text.push('\n');
        self
    }
}

pub(super) enum Number {
    Whole(u64),
    Real(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_help_a_type_and_their_series() {
        let mut out = Exposition::default();
        let at = Timestamp::from_millisecond(1500).unwrap();
        out.gauge("up", "Whether it is up.").is(&[], 1_u64).was(&[("who", "a\"b"), ("x", "y")], 0.5, at);
        let expected = "# HELP up Whether it is up.\n# TYPE up gauge\nup 1\nup{who=\"a\\\"b\",x=\"y\"} 0.5 1500\n";
        assert_eq!(out.into_text(), expected);
    }
}

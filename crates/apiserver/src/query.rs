//! Query parameters and the options they spell.

use std::time::Duration;

use crate::error::ApiError;

/// The parameters of one request, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self(pairs.map(|(key, value)| (key.into_owned(), value.into_owned())).collect())
    }

    /// For another server; none if there are no parameters.
    pub(crate) fn encoded(&self) -> Option<String> {
        let pairs = form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.0).finish();
        (!pairs.is_empty()).then_some(pairs)
    }

    /// The first value of a parameter, none if it is absent or empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// API-113: anything but `false` and `0` is true, also the bare name.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.flag(name).unwrap_or(false)
    }

    /// As `is_set`, telling absent from false.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        let value = self.all(name).next()?;
        Some(!value.eq_ignore_ascii_case("false") && value != "0")
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text
            .parse()
            .map_err(|_| ApiError::BadRequest(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))?;
        Ok(Some(number))
    }

    /// API-005: how long the caller is ready to wait; zero leaves it to us.
    pub(crate) fn patience(&self) -> Result<Option<Duration>, ApiError> {
        let Some(text) = self.text("timeout").filter(|text| *text != "0") else { return Ok(None) };
        let wrong = |problem| ApiError::BadRequest(format!("invalid timeout specified in the request URL - {problem}"));
        let parsed = objects::duration::parse(text).map_err(wrong)?;
        Ok(Duration::try_from(parsed).ok().filter(|patience| !patience.is_zero()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_113_booleans() {
        let query = Query::parse(Some("a&b=1&c=False&d=0&e=true"));
        let set: Vec<_> = ["a", "b", "c", "d", "e", "f"].into_iter().filter(|name| query.is_set(name)).collect();
        assert_eq!(set, ["a", "b", "e"]);
        assert_eq!(query.flag("f"), None);
    }

    #[test]
    fn api_113_malformed_numbers_are_refused() {
        assert!(Query::parse(Some("limit=x")).number("limit").is_err());
        assert_eq!(Query::parse(Some("limit=5")).number("limit").unwrap(), Some(5));
        assert_eq!(Query::parse(Some("limit=")).number("limit").unwrap(), None);
    }

    #[test]
    fn api_005_timeouts_are_durations_as_go_writes_them() {
        for (text, millis) in [("32s", 32_000), ("1m30s", 90_000), ("1.5h", 5_400_000), ("250ms", 250)] {
            let patience = Query::parse(Some(&format!("timeout={text}"))).patience().unwrap();
            assert_eq!(patience, Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "timeout=", "timeout=0", "timeout=0s", "timeout=-5s"] {
            assert_eq!(Query::parse(Some(text)).patience().unwrap(), None, "{text}");
        }
        for text in ["timeout=invalid", "timeout=5", "timeout=PT5S", "timeout=5%20seconds", "timeout=1d"] {
            assert!(Query::parse(Some(text)).patience().is_err(), "{text}");
        }
    }
}

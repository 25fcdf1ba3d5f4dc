//! Selectors and quantities: what can be read is told back in words that mean
//! the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use objects::{FieldSelector, LabelSelector, Quantity};

fuzz_target!(|text: &str| {
    if let Ok(selector) = LabelSelector::parse(text) {
        selector.matches(&[("a".to_owned(), "1".to_owned())].into());
    }
    if let Ok(selector) = FieldSelector::parse(text) {
        selector.matches(&[("metadata.name", "a".to_owned())]);
    }
    if let Ok(quantity) = Quantity::parse(text) {
        let told = quantity.to_string();
        let again = Quantity::parse(&told).expect("a canonical quantity can be read");
        assert_eq!(again.to_string(), told);
        assert_eq!(again.nanos(), quantity.nanos());
    }
});

//! Quantities: parsed, compared, printed.

use super::*;

fn canonical(text: &str) -> String {
    Quantity::parse(text).map_or_else(|error| error.to_string(), |quantity| quantity.to_string())
}

#[test]
fn api_103_quantities_print_in_canonical_form() {
    for (text, expected) in [
        ("1", "1"),
        ("1.5", "1500m"),
        ("1.5Gi", "1536Mi"),
        ("0.5Gi", "512Mi"),
        ("1024", "1024"),
        ("1024Ki", "1Mi"),
        ("1000m", "1"),
        ("0.1", "100m"),
        ("100Mi", "100Mi"),
        ("1024Mi", "1Gi"),
        ("1500Mi", "1500Mi"),
        ("100M", "100M"),
        ("-0.5", "-500m"),
        ("1e3", "1e3"),
        ("1500e0", "1500"),
        ("12e6", "12e6"),
        ("1000k", "1M"),
        ("0", "0"),
        ("-1", "-1"),
        ("+5", "5"),
        ("00.500", "500m"),
        (".5", "500m"),
        ("5.", "5"),
        ("0.1Ki", "102400m"),
        ("0.0000000001", "1n"),
        ("1E", "1E"),
        ("99999999999999999999999", "9223372036854775807"),
    ] {
        assert_eq!(canonical(text), expected, "{text}");
    }
}

#[test]
fn text_that_is_no_quantity_is_refused() {
    for text in ["", "-", ".", "1..2", "1.2.3", "Gi", "1gi", "1 Gi", "1Kib", "0x1", "1e", "1ee3", "one"] {
        assert_eq!(Quantity::parse(text), Err(QuantityError), "{text}");
    }
}

#[test]
fn value_and_milli_round_up() {
    let q = |text| Quantity::parse(text).unwrap();
    assert_eq!((q("100m").value(), q("100m").milli()), (1, 100));
    assert_eq!((q("1.0001").value(), q("1.0001").milli()), (2, 1001));
    assert_eq!((q("1Gi").value(), q("1Gi").milli()), (1 << 30, 1000 << 30));
    assert_eq!((q("-1.5").value(), q("-1.5").milli()), (-2, -1500));
}

#[test]
fn api_477_quantities_are_rounded_up_to_a_thousandth() {
    assert_eq!(Quantity::parse("0.1m").unwrap().rounded_to_milli().to_string(), "1m");
    assert_eq!(Quantity::parse("128Mi").unwrap().rounded_to_milli().to_string(), "128Mi");
}

#[test]
fn quantities_compare_by_amount_not_by_spelling() {
    let q = |text| Quantity::parse(text).unwrap();
    assert_eq!(q("1"), q("1000m"));
    assert_eq!(q("1Ki"), q("1024"));
    assert!(q("1G") < q("1Gi"));
    assert_eq!(q("500m").plus(q("1")).to_string(), "1500m");
    assert_eq!(Quantity::ZERO.plus(q("1Gi")).to_string(), "1Gi");
    assert_eq!(q("2").minus(q("500m")).to_string(), "1500m");
}

proptest::proptest! {
    #[test]
    fn any_text_parses_or_is_refused_without_panic(text in "[+-]?[0-9.]{0,40}[eEinumkKMGTP]{0,2}[-+]?[0-9]{0,9}") {
        if let Ok(quantity) = Quantity::parse(&text) {
            let canonical = quantity.to_string();
            let again = Quantity::parse(&canonical).unwrap();
            proptest::prop_assert_eq!(again, quantity);
            proptest::prop_assert_eq!(again.to_string(), canonical);
        }
    }
}

//! Whether a pod tolerates the taints of a node.

use crate::api::core::v1 as core;

/// What a taint does to a pod that does not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl Effect {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "NoSchedule" => Some(Self::NoSchedule),
            "PreferNoSchedule" => Some(Self::PreferNoSchedule),
            "NoExecute" => Some(Self::NoExecute),
            _ => None,
        }
    }

    /// Whether an untolerated taint keeps the pod away, not just less welcome.
    pub fn repels(self) -> bool {
        matches!(self, Self::NoSchedule | Self::NoExecute)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: Effect,
}

impl Taint {
    pub fn no_schedule(key: &str) -> Self {
        Self { key: key.to_owned(), value: String::new(), effect: Effect::NoSchedule }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toleration {
    /// `None` tolerates every key.
    key: Option<String>,
    matches: Matches,
    /// `None` tolerates every effect; `Some(None)` an effect nobody knows.
    effect: Option<Option<Effect>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Matches {
    Any,
    Value(String),
    /// Greater or less than an integer (`Gt`, `Lt`).
    Above(i64),
    Below(i64),
    Nothing,
}

impl Toleration {
    pub fn parse(toleration: &core::Toleration) -> Self {
        let value = toleration.value.clone().unwrap_or_default();
        let matches = match toleration.operator.as_deref() {
            None | Some("" | "Equal") => Matches::Value(value),
            Some("Exists") => Matches::Any,
            Some("Gt") => value.parse().map_or(Matches::Nothing, Matches::Above),
            Some("Lt") => value.parse().map_or(Matches::Nothing, Matches::Below),
            Some(_) => Matches::Nothing,
        };
        Self {
            key: toleration.key.clone().filter(|key| !key.is_empty()),
            matches,
            effect: toleration.effect.as_deref().filter(|effect| !effect.is_empty()).map(Effect::parse),
        }
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == Some(taint.effect))
            && self.key.as_ref().is_none_or(|key| *key == taint.key)
            && match &self.matches {
                Matches::Any => true,
                Matches::Value(value) => *value == taint.value,
                Matches::Above(bound) => taint.value.parse::<i64>().is_ok_and(|value| value > *bound),
                Matches::Below(bound) => taint.value.parse::<i64>().is_ok_and(|value| value < *bound),
                Matches::Nothing => false,
            }
    }
}

pub fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| toleration.tolerates(taint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Toleration::parse(&core::Toleration {
            key: some(key),
            operator: some(operator),
            value: some(value),
            effect: some(effect),
            toleration_seconds: None,
        })
    }

    #[test]
    fn tc_331_tolerations_match_by_key_value_and_effect() {
        let taint = Taint { key: "gpu".into(), value: "yes".into(), effect: Effect::NoSchedule };
        for (toleration, expected) in [
            (toleration("gpu", "", "yes", "NoSchedule"), true),
            (toleration("gpu", "Equal", "yes", ""), true),
            (toleration("gpu", "Equal", "no", ""), false),
            (toleration("gpu", "Exists", "", "NoExecute"), false),
            (toleration("gpu", "Exists", "", ""), true),
            (toleration("", "Exists", "", ""), true),
            (toleration("cpu", "Exists", "", ""), false),
            (toleration("gpu", "Exists", "", "NoWay"), false),
        ] {
            assert_eq!(is_tolerated(&taint, std::slice::from_ref(&toleration)), expected, "{toleration:?}");
        }
    }
}

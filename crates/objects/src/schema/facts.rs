//! Reads `facts.txt`.

use std::collections::HashMap;

const TABLE: &str = include_str!("facts.txt");

/// What the table says, by the name of the schema: API-401, API-402, API-403, API-404, API-405,
/// API-406, API-407, API-408, API-409, API-410, API-411, API-412, API-413, API-414, API-415,
/// API-416, API-417, API-418, API-419, API-420, API-421, API-422, API-423, API-424, API-425,
/// API-426, API-427, API-428, API-429, API-430, API-431, API-432, API-433, API-434, API-435,
/// API-436, API-437, API-438, API-439, API-440, API-441, API-442, API-443, API-444, API-445,
/// API-446, API-447, API-448.
#[derive(Debug, Default)]
pub struct Facts(HashMap<String, TypeFacts>);

#[derive(Debug, Default, Clone)]
pub struct TypeFacts {
    /// Replaced whole by server-side apply.
    pub is_atomic: bool,
    fields: Vec<(&'static str, FieldFacts)>,
    pub union: Option<Union>,
}

#[derive(Debug, Default, Clone, Copy)]
pub struct FieldFacts {
    pub relation: Option<Relation>,
    /// As in `x-kubernetes-patch-strategy`.
    pub strategy: Option<&'static str>,
    pub merge_key: Option<&'static str>,
    pub default: Preset,
}

/// Which default a field has.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// The zero of a required scalar, otherwise none.
    #[default]
    Usual,
    None,
    /// As JSON.
    Value(&'static str),
}

/// How server-side apply treats a list or a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    Atomic,
    /// Merged here, although the type is atomic elsewhere.
    Granular,
    Set,
    /// The fields that tell the items apart, separated by commas.
    Map(&'static str),
}

#[derive(Debug, Clone)]
pub struct Union {
    pub discriminator: &'static str,
    pub members: Vec<(&'static str, &'static str)>,
}

impl Facts {
    pub fn read() -> Self {
        let (mut facts, mut package) = (HashMap::new(), "");
        for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                package = header;
                continue;
            }
            let (head, rows) = line.split_once(": ").unwrap_or((line, ""));
            let (name, is_atomic) = head.strip_suffix(" atomic").map_or((head, false), |name| (name, true));
            let mut of = TypeFacts { is_atomic, ..TypeFacts::default() };
            for row in rows.split("; ").filter(|row| !row.is_empty()) {
                of.add(row);
            }
            facts.insert(format!("{package}.{name}"), of);
        }
        Self(facts)
    }

    pub fn of(&self, schema: &str) -> Option<&TypeFacts> {
        self.0.get(schema)
    }

    /// Every schema with a row, for checks of the table.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl TypeFacts {
    fn add(&mut self, row: &'static str) {
        let mut words = row.split(' ');
        let name = words.next().unwrap_or_default();
        if name == "union" {
            let discriminator = words.next().unwrap_or_default();
            let members = words.next().unwrap_or_default().split(',').filter_map(|member| member.split_once('='));
            self.union = Some(Union { discriminator, members: members.collect() });
            return;
        }
        let mut facts = FieldFacts::default();
        for word in words {
            facts.add(word);
        }
        self.fields.push((name, facts));
    }

    pub fn field(&self, name: &str) -> FieldFacts {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, facts)| *facts).unwrap_or_default()
    }

    /// Whether clients must give a field that the type demands: upstream says
    /// no where it has a default of its own, and never demands metadata.
    pub fn is_demanded(&self, name: &str) -> bool {
        name != "metadata" && !matches!(self.field(name).default, Preset::Value(value) if value != "{}")
    }

    pub fn fields(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.fields.iter().map(|(name, _)| *name)
    }
}

impl FieldFacts {
    fn add(&mut self, word: &'static str) {
        let (head, inner) = match word.split_once('(') {
            Some((head, inner)) if !word.starts_with('=') => (head, Some(inner.trim_end_matches(')'))),
            _ => (word, None),
        };
        match (head, inner) {
            ("=none", _) => self.default = Preset::None,
            ("atomic", _) => self.relation = Some(Relation::Atomic),
            ("granular", _) => self.relation = Some(Relation::Granular),
            ("set", _) => self.relation = Some(Relation::Set),
            ("map", Some(keys)) => self.relation = Some(Relation::Map(keys)),
            (strategy, key) => match strategy.strip_prefix('=') {
                Some(value) => self.default = Preset::Value(value),
                None => (self.strategy, self.merge_key) = (Some(strategy), key),
            },
        }
    }
}

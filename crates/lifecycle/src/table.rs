//! A map for a handful of keys.
//!
//! A pod has few of anything. A list of pairs finds a key as fast as a tree
//! does and takes a tenth of the memory. In order of insertion.

use std::borrow::Borrow;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table<K, V>(Vec<(K, V)>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: PartialEq, V> Table<K, V> {
    pub(crate) fn get<Q: PartialEq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.iter().find(|(known, _)| known.borrow() == key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut<Q: PartialEq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.0.iter_mut().find(|(known, _)| (*known).borrow() == key).map(|(_, value)| value)
    }

    pub(crate) fn find(&self, test: impl Fn(&K) -> bool) -> Option<&V> {
        self.0.iter().find(|(key, _)| test(key)).map(|(_, value)| value)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    /// What was there before.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.get_mut(&key) {
            Some(known) => Some(std::mem::replace(known, value)),
            None => {
                self.0.push((key, value));
                None
            }
        }
    }

    pub(crate) fn get_or_insert(&mut self, key: K, value: V) -> &mut V {
        let known = self.keys().position(|known| *known == key);
        let at = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push((key, value));
        }
        &mut self.0[at].1
    }

    pub(crate) fn remove<Q: PartialEq + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.0.retain(|(known, _)| known.borrow() != key);
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        self.0.retain(|(key, value)| keep(key, value));
    }
}

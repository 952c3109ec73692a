//! The labels of workspaces as labels of clusters. No I/O.

use std::{collections::BTreeMap, sync::Arc};

pub(crate) type Labels = BTreeMap<String, String>;

/// The keys of the labels that become labels of clusters.
#[derive(Debug, Clone, Default)]
pub(crate) struct LabelKeys(Arc<[String]>);

impl LabelKeys {
    pub(crate) fn new(keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(keys.into_iter().map(Into::into).collect())
    }

    /// The first one that no label can have.
    pub(crate) fn invalid(&self) -> Option<&str> {
        let mut keys = self.0.iter().map(|key| &**key);
        keys.find(|key| !is_label_key(key))
    }

    /// The labels with these keys that an API server would accept.
    pub(crate) fn of(&self, labels: &Labels) -> Labels {
        let named = self.0.iter().filter_map(|key| labels.get_key_value(key));
        let usable = named.filter(|(_, value)| is_label_value(value));
        usable.map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

/// A name as in a value, perhaps with a DNS name and a slash before it.
fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text
        .split_once('/')
        .map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let is_part = |part: &str| {
        let is_of_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        is_label_value(part) && !part.is_empty() && part.bytes().all(is_of_part)
    };
    let is_prefix = |prefix: &str| prefix.len() <= 253 && prefix.split('.').all(is_part);
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(is_prefix)
}

fn is_label_value(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_end = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63 && bytes.iter().copied().all(inside) && is_end(bytes.first()) && is_end(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_labels_with_values_that_kubernetes_accepts_are_taken() {
        let long = "x".repeat(64);
        let all = [
            ("env", "prod"),
            ("empty", ""),
            ("longest", &long[1..]),
            ("too-long", &long),
            ("space", "a b"),
            ("end", "a-"),
            ("lines", "a\nb"),
            ("other", "prod"),
        ];
        let labels = all.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let named = LabelKeys::new(all[..7].iter().map(|(key, _)| *key).chain(["missing"]));
        let taken = named.of(&labels);
        assert_eq!(taken.keys().collect::<Vec<_>>(), ["empty", "env", "longest"]);
        assert_eq!(taken["env"], "prod");
        assert!(LabelKeys::default().of(&labels).is_empty());
    }
}

//! Encodes the objects of one watch.

use std::sync::Arc;

use hashbrown::HashSet;

use super::{
    encoding::Encoding,
    template::{Template, TemplateKey},
    template_registry::{TemplateRegistry, WatchId},
    uid::Uid,
};

/// How many recent encodings an encoder remembers, so that it need not search the registry.
const RECENT: usize = 4;

/// An encoder keeps this many namespaces even if they have no objects.
const FEW_NAMESPACES: usize = 16;

/// Encodes the objects of one watch: gives each object its encoding, and shares memory among them.
///
/// Make one encoder per watch and keep it for the watch's life: it counts as a watch in the quotas of its
/// [`TemplateRegistry`]. Pass it to [`RawObject::encode`](crate::RawObject::encode).
///
/// ```
/// use std::sync::Arc;
///
/// use mcr_store::{Encoder, Encoding, TemplateRegistry, parse_list};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let body = br#"{"metadata":{"resourceVersion":"9"},"items":[
///     {"metadata":{"name":"a","namespace":"default","uid":"1","resourceVersion":"3"},"data":{"k":"x"}},
///     {"metadata":{"name":"b","namespace":"default","uid":"2","resourceVersion":"4"},"data":{"k":"y"}}
/// ]}"#;
/// let mut encoder = Encoder::with_templates(Arc::new(TemplateRegistry::new(Encoding::new("v1", "ConfigMap"))));
/// for item in parse_list(body)?.items.iter() {
///     let object = item?.encode(None, &mut encoder)?;
///     println!("{object:?} takes {} bytes", object.held_bytes());
/// }
/// # Ok(())
/// # }
/// ```
pub struct Encoder {
    plain: Encoding,
    namespaces: HashSet<Arc<str>>,
    /// At this number of namespaces, the encoder drops those that no object uses.
    most_namespaces: usize,
    /// `None` if objects are held without templates.
    templates: Option<(Arc<TemplateRegistry>, WatchId)>,
    /// The recent encodings, each with its own reference count.
    recent: [Option<Encoding>; RECENT],
    /// The index of the oldest recent encoding.
    next: usize,
}

impl Encoder {
    /// An encoder that holds objects without templates: as their JSON, without `metadata.managedFields`.
    pub fn plain(plain: Encoding) -> Self {
        Self {
            plain: plain.with_own_count(),
            namespaces: HashSet::default(),
            most_namespaces: FEW_NAMESPACES,
            templates: None,
            recent: Default::default(),
            next: 0,
        }
    }

    /// An encoder that holds objects with the templates of a registry.
    pub fn with_templates(templates: Arc<TemplateRegistry>) -> Self {
        Self {
            templates: Some((templates.clone(), templates.watch())),
            ..Self::plain(templates.plain().clone())
        }
    }

    /// The encoding of objects without a template.
    pub(super) fn plain_encoding(&self) -> &Encoding {
        &self.plain
    }

    pub(super) fn has_templates(&self) -> bool {
        self.templates.is_some()
    }

    /// The namespace as a text that all objects of the watch share.
    pub(super) fn namespace(&mut self, namespace: &str) -> Arc<str> {
        if let Some(shared) = self.namespaces.get(namespace) {
            return shared.clone();
        }
        if self.namespaces.len() >= self.most_namespaces {
            self.namespaces.retain(|shared| Arc::strong_count(shared) > 1);
            self.most_namespaces = (2 * self.namespaces.len()).max(FEW_NAMESPACES);
        }
        let new: Arc<str> = namespace.into();
        self.namespaces.insert(new.clone());
        new
    }

    /// The encoding of objects that have this key, as in [`TemplateRegistry::encoding_for`].
    pub(super) fn encoding_for(
        &mut self,
        key: TemplateKey<'_>,
        placeholders: usize,
        uid: Uid,
    ) -> Option<Encoding> {
        let mut recent = self.recent.iter().flatten();
        let hit = recent.find(|encoding| encoding.template().map(Template::key) == Some(key));
        if let Some(encoding) = hit {
            return Some(encoding.clone());
        }
        let (templates, watch) = self.templates.as_ref()?;
        let encoding = templates
            .encoding_for(key, placeholders, uid, *watch)?
            .with_own_count();
        if let Some(oldest) = self.recent.get_mut(self.next) {
            *oldest = Some(encoding.clone());
        }
        self.next = (self.next + 1) % RECENT;
        Some(encoding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_without_objects_are_dropped_and_others_stay_shared() {
        let mut encoder = Encoder::plain(Encoding::new("v1", "ConfigMap"));
        let held: Vec<Arc<str>> = (0..100)
            .map(|n| encoder.namespace(&format!("held-{n}")))
            .collect();
        for n in 0..100_000 {
            encoder.namespace(&format!("ephemeral-{n}"));
            assert!(encoder.namespaces.len() <= 2 * held.len());
        }
        for namespace in &held {
            assert!(Arc::ptr_eq(&encoder.namespace(namespace), namespace));
        }
    }
}

//! The templates of a kind, shared by all watches of the kind.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::atomic::{AtomicU64, Ordering},
};

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::RwLock;

use super::{
    encoding::Encoding,
    placeholder::PLACEHOLDER,
    template::{Template, TemplateKey},
    uid::Uid,
};

/// The most templates of a kind.
const MAX_TEMPLATES: usize = 4096;
/// The most memory that the templates of a kind take, in bytes.
const MAX_BYTES: usize = 4 << 20;

/// The quota of each watch is `1 / min(watches, MAX_SHARES)` of the registry.
const MAX_SHARES: usize = 8;

/// The longest JSON from which a template is made. Longer JSON would keep the lock for long, while other watches wait.
const MAX_TEMPLATE: usize = 64 << 10;

/// The most remembered keys that only one object has had. It exceeds [`MAX_TEMPLATES`]: if watches are read one after
/// the other, a key comes again only after all other keys.
const MAX_SEEN_ONCE: usize = 2 * MAX_TEMPLATES;

/// The templates of one kind, for any number of watches. [`Encoder`](crate::Encoder)s use them.
///
/// A template is made when a second object has the same layout: the same fields, in the same order, with other strings
/// and numbers. A registry holds at most 4096 templates and 4 MiB. Each watch adds at most its quota of both:
/// everything if it is the only watch, an eighth if there are eight or more. If the registry is full, templates that
/// no object uses are dropped. If all are in use, further objects are stored without a template, which takes more
/// memory.
///
/// ```
/// use std::sync::Arc;
///
/// use mcr_store::{Encoder, Encoding, Object, TemplateRegistry};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let templates = Arc::new(TemplateRegistry::new(Encoding::new("v1", "ConfigMap")));
/// let mut encoder = Encoder::with_templates(templates);
/// let mut parse = |name: &str| -> Result<Object, Box<dyn std::error::Error>> {
///     let json = format!(r#"{{"metadata":{{"name":"{name}","uid":"{name}"}},"data":{{"a-long-name":"x"}}}}"#);
///     Ok(Object::parse(serde_json::from_str(&json)?, &mut encoder)?)
/// };
/// let (first, second) = (parse("a")?, parse("b")?);
/// assert_eq!(first.bytes(), second.bytes());
/// // The second object shares its field names with all objects after it.
/// assert!(second.held_bytes() < first.held_bytes());
/// # Ok(())
/// # }
/// ```
pub struct TemplateRegistry {
    plain: Encoding,
    hasher: DefaultHashBuilder,
    templates: RwLock<Templates>,
    /// How many watches have been registered so far.
    watches: AtomicU64,
}

/// The watch that makes a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WatchId(u64);

#[derive(Default)]
struct Templates {
    entries: HashTable<Entry>,
    all: Usage,
    by_watch: HashMap<WatchId, Usage>,
    /// The hashes of keys that only one object has had, with the UID of that object.
    seen_once: HashMap<u64, Uid>,
    /// How many more requests for a template are declined before unused templates are searched again.
    cooldown: usize,
}

struct Entry {
    encoding: Encoding,
    watch: WatchId,
}

/// How many templates there are, and how many bytes they take.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
struct Usage {
    templates: usize,
    bytes: usize,
}

impl TemplateRegistry {
    /// An empty registry. `plain` is the encoding of objects without a template; it gives `apiVersion` and `kind`.
    pub fn new(plain: Encoding) -> Self {
        Self {
            plain,
            hasher: DefaultHashBuilder::default(),
            templates: RwLock::default(),
            watches: AtomicU64::new(0),
        }
    }

    /// The encoding of objects without a template.
    pub(super) fn plain(&self) -> &Encoding {
        &self.plain
    }

    /// Registers a watch.
    pub(super) fn watch(&self) -> WatchId {
        WatchId(self.watches.fetch_add(1, Ordering::Relaxed))
    }

    /// The encoding of objects that have this key. `placeholders` is the number of placeholders in the tail. `None`
    /// for the first object with the key, and if there is no room for another template.
    pub(super) fn encoding_for(
        &self,
        key: TemplateKey<'_>,
        placeholders: usize,
        uid: Uid,
        watch: WatchId,
    ) -> Option<Encoding> {
        let hash = self.hasher.hash_one(key);
        {
            let templates = self.templates.read();
            if let Some(encoding) = templates.get(hash, key) {
                return Some(encoding);
            }
        }
        // A key that can't become a template is declined before the write lock is taken.
        let has_placeholders_only =
            || memchr::memchr_iter(PLACEHOLDER, key.json.as_bytes()).count() == placeholders;
        if key.json.len() > MAX_TEMPLATE || !has_placeholders_only() {
            return None;
        }
        let mut templates = self.templates.write();
        // Another thread may have made the template meanwhile.
        if let Some(encoding) = templates.get(hash, key) {
            return Some(encoding);
        }
        if !templates.seen_in_another_object(hash, uid) {
            return None;
        }
        let template = Template::new(self.plain.prefix(), key, placeholders)?;
        let bytes = template.bytes();
        let watches = usize::try_from(self.watches.load(Ordering::Relaxed)).unwrap_or(MAX_SHARES);
        if !templates.make_room(bytes, watch, watches.clamp(1, MAX_SHARES)) {
            return None;
        }
        let encoding = self.plain.with_template(template);
        templates.all.add(bytes);
        templates.by_watch.entry(watch).or_default().add(bytes);
        let hash_of = |entry: &Entry| key_of(&entry.encoding).map_or(0, |key| self.hasher.hash_one(key));
        let entry = Entry {
            encoding: encoding.clone(),
            watch,
        };
        templates.entries.insert_unique(hash, entry, hash_of);
        Some(encoding)
    }
}

impl Usage {
    fn add(&mut self, bytes: usize) {
        self.templates += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.templates -= 1;
        self.bytes -= bytes;
    }

    /// Whether a further template fits into `1 / shares` of the registry.
    fn has_room(self, bytes: usize, shares: usize) -> bool {
        self.templates < MAX_TEMPLATES / shares && self.bytes + bytes <= MAX_BYTES / shares
    }
}

impl Templates {
    fn get(&self, hash: u64, key: TemplateKey<'_>) -> Option<Encoding> {
        let entry = self
            .entries
            .find(hash, |entry| key_of(&entry.encoding) == Some(key));
        entry.map(|entry| entry.encoding.clone())
    }

    /// Whether an object with another UID has had the key. One object may come several times, changed or not.
    fn seen_in_another_object(&mut self, hash: u64, uid: Uid) -> bool {
        match self.seen_once.get(&hash) {
            Some(first) => *first != uid,
            None => {
                if self.seen_once.len() >= MAX_SEEN_ONCE {
                    self.seen_once.clear();
                }
                self.seen_once.insert(hash, uid);
                false
            }
        }
    }

    /// Whether a further template fits. If it does not, drops unused templates first.
    fn make_room(&mut self, bytes: usize, watch: WatchId, shares: usize) -> bool {
        let has_room = |templates: &Self| {
            let own = templates.by_watch.get(&watch).copied().unwrap_or_default();
            templates.all.has_room(bytes, 1) && own.has_room(bytes, shares)
        };
        if has_room(self) {
            return true;
        }
        if self.cooldown > 0 {
            self.cooldown -= 1;
            return false;
        }
        let Self {
            entries,
            all,
            by_watch,
            ..
        } = self;
        entries.retain(|entry| {
            let is_used = entry.encoding.is_shared();
            if !is_used {
                let bytes = bytes_of(&entry.encoding);
                all.remove(bytes);
                if let Some(own) = by_watch.get_mut(&entry.watch) {
                    own.remove(bytes);
                }
            }
            is_used
        });
        by_watch.retain(|_, own| own.templates > 0);
        let has_room = has_room(self);
        if !has_room {
            self.cooldown = MAX_TEMPLATES;
            tracing::debug!(
                "there is no room for more templates of a kind: further objects are held without one"
            );
        }
        has_room
    }
}

fn key_of(encoding: &Encoding) -> Option<TemplateKey<'_>> {
    encoding.template().map(Template::key)
}

fn bytes_of(encoding: &Encoding) -> usize {
    encoding.template().map_or(0, Template::bytes)
}

#[cfg(test)]
mod tests;

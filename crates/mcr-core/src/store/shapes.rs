//! The shapes of a kind, which all clusters share.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::{
    Form,
    shape::{Alike, HOLE, Shape},
    uid::Uid,
};

/// More shapes than these no kind has. What differs so much from object to object is held as it is.
const MOST: usize = 4096;
/// And no more than this.
const MOST_BYTES: usize = 4 << 20;

/// Such a part of both one of many watches may have made, so that no cluster takes them from the others. Of fewer watches
/// than these each may have made its part.
const PART: usize = 8;

/// A larger shape is not made: those who wait for the lock meanwhile read other clusters.
const LARGEST: usize = 64 << 10;

/// So many are remembered that one object has. More than there may be shapes: where clusters are read one after the other,
/// the same shape comes again only after all others.
const REMEMBERED: usize = 2 * MOST;

/// The forms of a kind. One is made of a shape that at least two objects have.
pub(crate) struct Shapes {
    plain: Form,
    hasher: DefaultHashBuilder,
    known: RwLock<Known>,
    watches: AtomicU64,
}

/// Who makes shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Watch(u64);

#[derive(Default)]
struct Known {
    forms: HashTable<Made>,
    all: Amount,
    by_watch: HashMap<Watch, Amount>,
    /// The hashes of shapes that one object has, with its UID.
    once: HashMap<u64, Uid>,
    /// How many are not to be made before another look for those that no object has any more.
    look_again: usize,
}

struct Made {
    form: Form,
    by: Watch,
}

/// How many shapes, and how many bytes they take.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
struct Amount {
    shapes: usize,
    bytes: usize,
}

impl Shapes {
    pub(crate) fn new(plain: Form) -> Self {
        Self {
            plain,
            hasher: DefaultHashBuilder::default(),
            known: RwLock::default(),
            watches: AtomicU64::new(0),
        }
    }

    /// Of objects that are held as they are.
    pub(super) fn plain(&self) -> &Form {
        &self.plain
    }

    pub(super) fn watch(&self) -> Watch {
        Watch(self.watches.fetch_add(1, Ordering::Relaxed))
    }

    /// The form of objects that are alike, with so many holes; none as long as only one is.
    pub(super) fn of(&self, alike: Alike<'_>, holes: usize, uid: Uid, by: Watch) -> Option<Form> {
        let hash = self.hasher.hash_one(alike);
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(form) = known.get(hash, alike) {
                return Some(form);
            }
        }
        // What can be no shape must not hold up the others by trying.
        let are_holes = || memchr::memchr_iter(HOLE, alike.json.as_bytes()).count() == holes;
        if alike.json.len() > LARGEST || !are_holes() {
            return None;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have made it.
        if let Some(form) = known.get(hash, alike) {
            return Some(form);
        }
        if !known.is_of_another(hash, uid) {
            return None;
        }
        let shape = Shape::new(self.plain.prefix(), alike, holes)?;
        let bytes = shape.bytes();
        let watches = usize::try_from(self.watches.load(Ordering::Relaxed)).unwrap_or(PART);
        if !known.has_room(bytes, by, watches.clamp(1, PART)) {
            return None;
        }
        let form = self.plain.shaped(shape);
        known.all.add(bytes);
        known.by_watch.entry(by).or_default().add(bytes);
        let hash_of = |made: &Made| alike_of(&made.form).map_or(0, |alike| self.hasher.hash_one(alike));
        let made = Made {
            form: form.clone(),
            by,
        };
        known.forms.insert_unique(hash, made, hash_of);
        Some(form)
    }
}

impl Amount {
    fn add(&mut self, bytes: usize) {
        self.shapes += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.shapes -= 1;
        self.bytes -= bytes;
    }

    /// Whether there may be one more, where there may be a part of the most that there may be at all.
    fn has_room(self, bytes: usize, part: usize) -> bool {
        self.shapes < MOST / part && self.bytes + bytes <= MOST_BYTES / part
    }
}

impl Known {
    fn get(&self, hash: u64, alike: Alike<'_>) -> Option<Form> {
        let made = self.forms.find(hash, |made| alike_of(&made.form) == Some(alike));
        made.map(|made| made.form.clone())
    }

    /// Whether an object other than this one has the shape. An object that comes again, changed or not, is none other.
    fn is_of_another(&mut self, hash: u64, uid: Uid) -> bool {
        match self.once.get(&hash) {
            Some(known) => *known != uid,
            None => {
                if self.once.len() >= REMEMBERED {
                    self.once.clear();
                }
                self.once.insert(hash, uid);
                false
            }
        }
    }

    /// Whether there may be one more; makes room if no object has some of those that there are.
    fn has_room(&mut self, bytes: usize, by: Watch, part: usize) -> bool {
        let has = |known: &Self| {
            let own = known.by_watch.get(&by).copied().unwrap_or_default();
            known.all.has_room(bytes, 1) && own.has_room(bytes, part)
        };
        if has(self) {
            return true;
        }
        if self.look_again > 0 {
            self.look_again -= 1;
            return false;
        }
        let Self {
            forms, all, by_watch, ..
        } = self;
        forms.retain(|made| {
            let is_held = made.form.is_shared();
            if !is_held {
                let bytes = bytes_of(&made.form);
                all.remove(bytes);
                if let Some(own) = by_watch.get_mut(&made.by) {
                    own.remove(bytes);
                }
            }
            is_held
        });
        by_watch.retain(|_, own| own.shapes > 0);
        let has = has(self);
        if !has {
            self.look_again = MOST;
            tracing::debug!(
                "there is no room for more shapes of a kind: further objects are held as they are"
            );
        }
        has
    }
}

fn alike_of(form: &Form) -> Option<Alike<'_>> {
    form.shape().map(Shape::alike)
}

fn bytes_of(form: &Form) -> usize {
    form.shape().map_or(0, Shape::bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::shape::Rest;

    const WATCH: Watch = Watch(0);

    /// Of a kind that many watch.
    fn shapes() -> Shapes {
        let shapes = Shapes::new(Form::new("v1", "ConfigMap"));
        for number in 0..PART {
            assert_eq!(shapes.watch(), Watch(number as u64));
        }
        shapes
    }

    fn of(shapes: &Shapes, json: &str, uid: Uid, by: Watch) -> Option<Form> {
        let rest = Rest {
            namespace: false,
            uid: false,
            resource_version: false,
            generation: false,
        };
        shapes.of(Alike { rest, json }, json.matches('\x7f').count(), uid, by)
    }

    fn uid(number: u32) -> Uid {
        Uid::read(&format!("6e0c7b4e-0b7c-4b58-9d3e-{number:012}")).0
    }

    fn known(shapes: &Shapes) -> (usize, usize) {
        let known = shapes.known.read().unwrap();
        let mut by_watch = HashMap::<Watch, Amount>::new();
        let mut all = Amount::default();
        for made in &known.forms {
            all.add(bytes_of(&made.form));
            by_watch.entry(made.by).or_default().add(bytes_of(&made.form));
        }
        assert_eq!(known.all, all);
        assert_eq!(known.by_watch, by_watch);
        assert!(all.shapes <= MOST && all.bytes <= MOST_BYTES);
        (all.shapes, known.once.len())
    }

    #[test]
    fn a_shape_is_made_when_a_second_object_has_it() {
        let shapes = shapes();
        assert!(of(&shapes, "a", uid(1), WATCH).is_none());
        // The same object after a change, or listed again.
        assert!(of(&shapes, "a", uid(1), WATCH).is_none());
        assert!(of(&shapes, "b", uid(2), WATCH).is_none());
        let form = of(&shapes, "a", uid(2), WATCH).unwrap();
        assert!(of(&shapes, "a", uid(1), WATCH).unwrap().is(&form));
        assert_eq!(known(&shapes).0, 1);
    }

    #[test]
    fn objects_without_anything_in_common_take_no_memory() {
        let shapes = shapes();
        for number in 0..20_000_u32 {
            assert!(of(&shapes, &number.to_string(), uid(number), WATCH).is_none());
        }
        let (forms, once) = known(&shapes);
        assert_eq!(forms, 0);
        assert!(once <= REMEMBERED);
    }

    #[test]
    fn clusters_that_are_read_one_after_the_other_share_many_shapes() {
        let shapes = shapes();
        let mut held = Vec::new();
        let of_cluster = |cluster: u32| {
            let watch = Watch(cluster.into());
            let of_one = |number: u32| {
                of(
                    &shapes,
                    &number.to_string(),
                    uid(10_000 * cluster + number),
                    watch,
                )
            };
            let before = held.len();
            held.extend((0..1_500).filter_map(of_one));
            held.len() - before
        };
        // Each makes as many as one may.
        assert_eq!([0, 1, 2, 3].map(of_cluster), [0, 512, 1024, 1500]);
    }

    /// Two objects of each of so many shapes.
    fn pairs(shapes: &Shapes, from: u32, count: usize, watch: Watch) -> Vec<Form> {
        let numbers = (from..).take(count);
        let pair = |number: u32| {
            let common = number.to_string();
            let _ = of(shapes, &common, uid(2 * number), watch);
            of(shapes, &common, uid(2 * number + 1), watch)
        };
        numbers.filter_map(pair).collect()
    }

    fn full(shapes: &Shapes) -> Vec<Form> {
        let part = MOST / PART;
        let of_watch = |watch: usize| pairs(shapes, (watch * part) as u32, part, Watch(watch as u64));
        (0..PART).flat_map(of_watch).collect()
    }

    #[test]
    fn no_more_shapes_are_made_than_there_may_be() {
        let shapes = shapes();
        let held = full(&shapes);
        assert_eq!(held.len(), MOST);
        assert!(pairs(&shapes, 1 << 20, 100, Watch(99)).is_empty());
        assert_eq!(known(&shapes).0, MOST);
        // Those that are known are found all the same.
        let first = of(&shapes, "0", uid(9), Watch(99));
        assert!(first.is_some_and(|form| form.is(&held[0])));
    }

    #[test]
    fn a_watch_that_is_the_only_one_has_all_the_room() {
        let shapes = Shapes::new(Form::new("v1", "ConfigMap"));
        let watch = shapes.watch();
        assert_eq!(pairs(&shapes, 0, MOST + 1, watch).len(), MOST);
    }

    #[test]
    fn one_watch_leaves_room_for_others() {
        let shapes = shapes();
        let held = pairs(&shapes, 0, MOST, WATCH);
        assert_eq!(held.len(), MOST / PART);
        let others = pairs(&shapes, 1 << 20, 10, Watch(1));
        assert_eq!(others.len(), 10);
        assert_eq!(known(&shapes).0, MOST / PART + 10);
    }

    #[test]
    fn shapes_that_no_object_has_make_room() {
        let shapes = shapes();
        let mut held = full(&shapes);
        assert!(pairs(&shapes, 1 << 20, 1, WATCH).is_empty());
        held.truncate(10);
        let one_more = |round: u32| pairs(&shapes, (1 << 20) + round, 1, WATCH).len();
        let later: usize = (1..=MOST as u32 + 1).map(one_more).sum();
        assert!(later > 0);
        known(&shapes);
        for (number, form) in (0_u32..).zip(&held) {
            assert!(of(&shapes, &number.to_string(), uid(7), WATCH).unwrap().is(form));
        }
    }

    #[test]
    fn large_shapes_are_bounded_by_all_that_they_take() {
        let shapes = shapes();
        let made = |common: &str, watch| {
            let _ = of(&shapes, common, uid(1), watch);
            of(&shapes, common, uid(2), watch)
        };
        let largest = "1".repeat(LARGEST);
        assert!(made(&largest, WATCH).is_some());
        assert!(made(&[&largest, "1"].concat(), WATCH).is_none());
        // Each hole takes four bytes more than it stands for.
        let holes = |number: u64| {
            let common = format!("{}{number}", "\x7f".repeat(LARGEST / 2));
            made(&common, Watch(number))
        };
        let held: Vec<Form> = (1..100).filter_map(holes).collect();
        assert!(held.len() < MOST_BYTES / (4 * LARGEST / 2), "{}", held.len());
        assert_eq!(known(&shapes).0, held.len());
    }
}

//! The shapes of a kind, which all clusters share.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{PoisonError, RwLock},
};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::{Form, shape::Shape, uid::Uid};

/// More shapes than these no kind has. What differs so much from object to object is held as it is.
const MOST: usize = 4096;
/// And no more than this.
const MOST_BYTES: usize = 4 << 20;

/// So many are remembered that one object has.
const REMEMBERED: usize = 1024;

/// The forms of a kind. One is made of a shape that at least two objects have.
pub(crate) struct Shapes {
    plain: Form,
    hasher: DefaultHashBuilder,
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    forms: HashTable<Form>,
    bytes: usize,
    /// The hashes of shapes that one object has, with its UID.
    once: HashMap<u64, Uid>,
    /// How many are not to be made before another look for those that no object has any more.
    look_again: usize,
}

impl Shapes {
    pub(crate) fn new(plain: Form) -> Self {
        Self {
            plain,
            hasher: DefaultHashBuilder::default(),
            known: RwLock::default(),
        }
    }

    pub(super) fn plain(&self) -> &Form {
        &self.plain
    }

    /// The form of objects that have as much in common as an object has with it; none as long as no other has.
    pub(super) fn of(&self, common: &[u8], uid: Uid) -> Option<Form> {
        let hash = self.hasher.hash_one(common);
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(form) = known.get(hash, common) {
                return Some(form);
            }
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have made it.
        if let Some(form) = known.get(hash, common) {
            return Some(form);
        }
        if !known.is_of_another(hash, uid) || !known.has_room(common.len()) {
            return None;
        }
        let form = self.plain.shaped(Shape::new(common)?);
        known.bytes += bytes(&form);
        let hash_of = |form: &Form| self.hasher.hash_one(common_of(form));
        known.forms.insert_unique(hash, form.clone(), hash_of);
        Some(form)
    }
}

impl Known {
    fn get(&self, hash: u64, common: &[u8]) -> Option<Form> {
        let form = self.forms.find(hash, |form| common_of(form) == common);
        form.cloned()
    }

    /// Whether an object other than this one has the shape. An object that comes again, changed or not, is none other.
    fn is_of_another(&mut self, hash: u64, uid: Uid) -> bool {
        match self.once.get(&hash) {
            Some(known) if *known != uid => {
                self.once.remove(&hash);
                true
            }
            Some(_) => false,
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
    fn has_room(&mut self, len: usize) -> bool {
        let has = |known: &Self| known.forms.len() < MOST && known.bytes + len <= MOST_BYTES;
        if has(self) {
            return true;
        }
        if self.look_again > 0 {
            self.look_again -= 1;
            return false;
        }
        let Self {
            forms, bytes: all, ..
        } = self;
        forms.retain(|form| {
            let is_held = form.is_shared();
            if !is_held {
                *all -= bytes(form);
            }
            is_held
        });
        let has = has(self);
        if !has {
            self.look_again = MOST;
        }
        has
    }
}

fn common_of(form: &Form) -> &[u8] {
    form.shape().map_or(&[], Shape::common)
}

fn bytes(form: &Form) -> usize {
    form.shape().map_or(0, Shape::bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes() -> Shapes {
        Shapes::new(Form::new("v1", "ConfigMap"))
    }

    fn uid(number: u32) -> Uid {
        Uid::read(&format!("6e0c7b4e-0b7c-4b58-9d3e-{number:012}")).0
    }

    fn known(shapes: &Shapes) -> (usize, usize) {
        let known = shapes.known.read().unwrap();
        let all: usize = known.forms.iter().map(bytes).sum();
        assert_eq!(known.bytes, all);
        (known.forms.len(), known.once.len())
    }

    #[test]
    fn a_shape_is_made_when_a_second_object_has_it() {
        let shapes = shapes();
        assert!(shapes.of(b"a", uid(1)).is_none());
        // The same object after a change, or listed again.
        assert!(shapes.of(b"a", uid(1)).is_none());
        assert!(shapes.of(b"b", uid(2)).is_none());
        let form = shapes.of(b"a", uid(2)).unwrap();
        assert!(shapes.of(b"a", uid(1)).unwrap().is(&form));
        assert_eq!(known(&shapes), (1, 1));
    }

    #[test]
    fn objects_without_anything_in_common_take_no_memory() {
        let shapes = shapes();
        for number in 0..10_000_u32 {
            assert!(shapes.of(&number.to_be_bytes(), uid(number)).is_none());
        }
        let (forms, once) = known(&shapes);
        assert_eq!(forms, 0);
        assert!(once <= REMEMBERED);
    }

    /// Two objects of each of so many shapes.
    fn pairs(shapes: &Shapes, from: u32, count: usize) -> Vec<Form> {
        let numbers = (from..).take(count);
        let pair = |number: u32| {
            let common = number.to_be_bytes();
            let _ = shapes.of(&common, uid(2 * number));
            shapes.of(&common, uid(2 * number + 1))
        };
        numbers.filter_map(pair).collect()
    }

    #[test]
    fn no_more_shapes_are_made_than_there_may_be() {
        let shapes = shapes();
        let held = pairs(&shapes, 0, MOST);
        assert_eq!(held.len(), MOST);
        assert!(pairs(&shapes, 1 << 20, 100).is_empty());
        assert_eq!(known(&shapes).0, MOST);
        // Those that are known are found all the same.
        assert!(
            shapes
                .of(&0_u32.to_be_bytes(), uid(9))
                .is_some_and(|form| form.is(&held[0]))
        );
    }

    #[test]
    fn shapes_that_no_object_has_make_room() {
        let shapes = shapes();
        let mut held = pairs(&shapes, 0, MOST);
        assert!(pairs(&shapes, 1 << 20, 1).is_empty());
        held.truncate(10);
        let later: usize = (1..=MOST as u32 + 1)
            .map(|round| pairs(&shapes, (1 << 20) + round, 1).len())
            .sum();
        assert!(later > 0);
        assert!(known(&shapes).0 <= MOST);
        for (number, form) in (0_u32..).zip(&held) {
            assert!(shapes.of(&number.to_be_bytes(), uid(7)).unwrap().is(form));
        }
    }

    #[test]
    fn large_shapes_are_bounded_by_their_bytes() {
        let shapes = shapes();
        let large = |number: u8| {
            let common = vec![number + 1; MOST_BYTES / 5];
            let _ = shapes.of(&common, uid(1));
            shapes.of(&common, uid(2))
        };
        let held: Vec<Form> = (0..9).filter_map(large).collect();
        assert_eq!(held.len(), 4);
        let (forms, _) = known(&shapes);
        assert_eq!(forms, 4);
    }
}

//! The objects of a list that is being read, and what the objects of each place take. Nothing in this module waits.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use crate::{
    error::WatchError,
    status::WatchProblem,
    target::{LeftOut, PlacedObject},
};

/// The objects of a list that wait until all have arrived.
///
/// Behind a scope endpoint, one list has the objects of many places. If they take too much, those of the largest places are left
/// out: one place must not keep the others from being listed. Their bytes are counted all the same, so at the end of the list it
/// is known which places are the largest.
pub(super) struct Staged {
    pub(super) objects: Vec<PlacedObject>,
    /// The memory of the objects.
    pub(super) bytes: usize,
    /// The bytes that the list may take.
    limit: usize,
    /// [`WatchSettings::held_bytes`](crate::WatchSettings::held_bytes), for each place.
    held_limit: Option<usize>,
    /// What the objects of each place take, also those that are left out.
    places: HashMap<Arc<str>, usize>,
    /// The same without the page that is being read, which may have to be read again.
    places_before: HashMap<Arc<str>, usize>,
    /// The number and the memory of the objects before that page.
    before_page: (usize, usize),
    left_out: BTreeSet<Arc<str>>,
}

impl Staged {
    /// A list that begins. It leaves these places out.
    pub(super) fn new(limit: usize, held_limit: Option<usize>, left_out: BTreeSet<Arc<str>>) -> Self {
        Self {
            objects: Vec::new(),
            bytes: 0,
            limit,
            held_limit,
            places: HashMap::new(),
            places_before: HashMap::new(),
            before_page: (0, 0),
            left_out,
        }
    }

    /// Adds an object of the page that is being read.
    ///
    /// # Errors
    /// [`WatchError::HoldsTooMuch`] if the objects belong to no place of a scope, and take more than one watch may hold.
    pub(super) fn add(&mut self, object: PlacedObject) -> Result<(), WatchError> {
        let bytes = size_of::<PlacedObject>() + object.object.held_bytes();
        let Some(place) = object.place.clone() else {
            self.bytes += bytes;
            self.objects.push(object);
            return match self.held_limit {
                Some(limit) if self.bytes > limit => Err(WatchError::HoldsTooMuch {
                    bytes: self.bytes,
                    limit,
                }),
                _ => Ok(()),
            };
        };
        *self.places.entry(place.clone()).or_default() += bytes;
        // First: the objects of such a place can be many, and to leave it out reads through all others.
        if self.left_out.contains(&place) {
            return Ok(());
        }
        if self.held_limit.is_some_and(|limit| self.taken(&place) > limit) {
            self.leave_out(BTreeSet::from([place]));
        } else {
            self.bytes += bytes;
            self.objects.push(object);
        }
        Ok(())
    }

    /// The page is complete.
    pub(super) fn end_page(&mut self) {
        self.places_before.clone_from(&self.places);
        self.before_page = (self.objects.len(), self.bytes);
    }

    /// The page has failed: nothing of it counts.
    pub(super) fn drop_page(&mut self) {
        self.places.clone_from(&self.places_before);
        self.objects.truncate(self.before_page.0);
        self.bytes = self.before_page.1;
    }

    /// Whether most of the memory is for the page, or places can make room.
    pub(super) fn has_room(&self) -> bool {
        self.bytes <= self.limit / 2 || !self.places.is_empty()
    }

    /// Leaves out the largest places, until there is room for so many bytes more. Does nothing if the objects belong to no place.
    pub(super) fn make_room(&mut self, bytes: usize) {
        // Much at once: each time all objects are looked through.
        let wanted = bytes.max(self.bytes / 8);
        let (mut room, mut largest) = (0, BTreeSet::new());
        for (place, taken) in self.by_size() {
            if room >= wanted {
                break;
            }
            if !self.left_out.contains(&place) {
                room += taken;
                largest.insert(place);
            }
        }
        if !largest.is_empty() {
            self.leave_out(largest);
        }
    }

    /// The places that should be left out, if those that are turn out not to be the largest ones, or to take less than before.
    pub(super) fn others_to_leave_out(&self) -> Option<BTreeSet<Arc<str>>> {
        if self.left_out.is_empty() {
            return None;
        }
        let by_size = self.by_size();
        let mut all: usize = by_size.iter().map(|(_, bytes)| bytes).sum();
        // Less than the limit: a place that grows and shrinks a little should not come and go, and the list needs a buffer.
        let most = self.limit - self.limit / 8;
        let too_much = by_size.into_iter().filter(|(_, bytes)| {
            let left_out = all > most || self.held_limit.is_some_and(|limit| *bytes > limit);
            all -= if left_out { *bytes } else { 0 };
            left_out
        });
        let should = too_much.map(|(place, _)| place).collect();
        (should != self.left_out).then_some(should)
    }

    /// The places that are left out, with the reasons.
    pub(super) fn reasons(&self) -> LeftOut {
        let reason = |place: &Arc<str>| {
            let bytes = self.taken(place);
            let held = self.held_limit.filter(|limit| bytes > *limit);
            WatchProblem::new(WatchError::PlaceTooLarge {
                bytes,
                limit: held.unwrap_or(self.limit),
                setting: held.map_or("WatchSettings::list_bytes", |_| "WatchSettings::held_bytes"),
            })
        };
        let reasons = self.left_out.iter().map(|place| (place.clone(), reason(place)));
        reasons.collect()
    }

    /// What the objects of a place take.
    fn taken(&self, place: &str) -> usize {
        self.places.get(place).copied().unwrap_or_default()
    }

    /// The places and what their objects take, the largest first.
    fn by_size(&self) -> Vec<(Arc<str>, usize)> {
        let mut sizes: Vec<_> = self.places.clone().into_iter().collect();
        // Of the same size, those that are left out already: they should not take turns.
        sizes.sort_by_key(|(place, bytes)| (Reverse(*bytes), !self.left_out.contains(place), place.clone()));
        sizes
    }

    fn leave_out(&mut self, places: BTreeSet<Arc<str>>) {
        let (objects, bytes) = &mut self.before_page;
        let (mut number, before) = (0, *objects);
        self.objects.retain(|object| {
            number += 1;
            let stays = object.place.as_ref().is_none_or(|place| !places.contains(place));
            if !stays {
                let size = size_of::<PlacedObject>() + object.object.held_bytes();
                self.bytes -= size;
                if number <= before {
                    (*objects, *bytes) = (*objects - 1, *bytes - size);
                }
            }
            stays
        });
        self.objects.shrink_to_fit();
        self.left_out.extend(places);
    }
}

#[cfg(test)]
mod tests;

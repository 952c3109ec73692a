//! Receives what a watch reports, and notes whatever can't be true. The tests of mcr-core use it, too.

#![allow(dead_code, reason = "each crate uses its part")]

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use mcr_store::{Object, ObjectChange};
use mcr_watch::{ChangeSink, WatchStatus};
use serde_json::Value;

use mcr_doubles::place::{Place, Stored};

/// What went wrong, in words.
#[derive(Clone, Default)]
pub(crate) struct Problems(Arc<Mutex<Vec<String>>>);

impl Problems {
    pub(crate) fn add(&self, problem: String) {
        self.0.lock().unwrap().push(problem);
    }

    #[track_caller]
    pub(crate) fn assert_none(&self) {
        let problems = self.0.lock().unwrap();
        assert!(problems.is_empty(), "{problems:#?}");
    }
}

/// One engagement's view of one kind.
pub(crate) struct Witness {
    who: String,
    places: Vec<Place>,
    problems: Problems,
    seen: Mutex<Seen>,
    closed: AtomicBool,
}

#[derive(Default)]
struct Seen {
    held: BTreeMap<String, Stored>,
    buried: HashSet<String>,
    place: Option<u64>,
    deletes: usize,
}

impl Witness {
    pub(crate) fn new(who: String, places: &[Place], problems: &Problems) -> Arc<Self> {
        Arc::new(Self {
            who,
            places: places.to_vec(),
            problems: problems.clone(),
            seen: Mutex::default(),
            closed: AtomicBool::new(false),
        })
    }

    /// From now on nothing may be reported any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// What there is, by what was reported.
    pub(crate) fn held(&self) -> BTreeMap<String, Stored> {
        self.seen.lock().unwrap().held.clone()
    }

    /// How many deletes were reported.
    pub(crate) fn deletes(&self) -> usize {
        self.seen.lock().unwrap().deletes
    }

    fn restored(&self) -> bool {
        self.places.iter().any(Place::was_restored)
    }

    fn wrong(&self, what: impl std::fmt::Display) {
        self.problems.add(format!("{}: {what}", self.who));
    }
}

/// An object as reported, in whichever form.
pub(crate) fn stored(object: &Object) -> Stored {
    let json: Value = serde_json::from_slice(&object.to_json()).unwrap();
    let meta = &json["metadata"];
    assert!(meta["managedFields"].is_null());
    let value = json["data"]["value"].as_str().or(json["spec"]["value"].as_str());
    Stored {
        uid: meta["uid"].as_str().unwrap_or_default().to_owned(),
        version: meta["resourceVersion"].as_str().unwrap_or_default().to_owned(),
        value: value.unwrap_or_default().to_owned(),
    }
}

impl ChangeSink for Witness {
    fn changed(&self, change: &ObjectChange) {
        let mut seen = self.seen.lock().unwrap();
        let key = change.key().unwrap().to_string();
        let (old, new) = (
            change.old.as_deref().map(stored),
            change.new.as_deref().map(stored),
        );
        if self.closed.load(Ordering::SeqCst) {
            self.wrong(format_args!("reported {key} after it left"));
        }
        for one in old.iter().chain(&new) {
            let of = Place::of_uid(&one.uid);
            if *seen.place.get_or_insert(of.unwrap()) != of.unwrap() {
                self.wrong(format_args!("reported {key} of another place: {one:?}"));
            }
        }
        let known = seen.held.get(&key).cloned();
        match (old, new) {
            (None, Some(new)) => {
                if let Some(known) = known {
                    self.wrong(format_args!("{key} added twice: {known:?}, {new:?}"));
                }
                if seen.buried.contains(&new.uid) && !self.restored() {
                    self.wrong(format_args!("{key} came back from the dead: {new:?}"));
                }
                seen.held.insert(key, new);
            }
            (Some(old), Some(new)) => {
                if known.as_ref() != Some(&old) {
                    self.wrong(format_args!("{key} was {known:?} and not {old:?}"));
                }
                if old.uid != new.uid {
                    self.wrong(format_args!("{key} became another object without a delete"));
                }
                if old == new {
                    self.wrong(format_args!("{key} reported without a change"));
                }
                seen.held.insert(key, new);
            }
            (Some(old), None) => {
                seen.deletes += 1;
                if known.is_none_or(|known| known.uid != old.uid) {
                    self.wrong(format_args!("{key} deleted, but was not there: {old:?}"));
                }
                if self.places.iter().any(|place| place.exists(&old.uid)) && !self.restored() {
                    self.wrong(format_args!("{key} deleted, but it still exists: {old:?}"));
                }
                seen.held.remove(&key);
                seen.buried.insert(old.uid);
            }
            (None, None) => self.wrong("reported nothing"),
        }
    }

    fn status_changed(&self, _: &WatchStatus) {
        if self.closed.load(Ordering::SeqCst) {
            self.wrong("reported its status after it left");
        }
    }
}

//! What a dictionary is made from: the first objects of a kind. No I/O, no zstd.

use std::sync::{Arc, Weak};

use crate::store::Object;

/// Where a kind is with its samples.
pub(super) enum Sampling {
    /// Waiting for enough objects that are held at the same time. They are not kept for it.
    Waiting {
        samples: Vec<Weak<Object>>,
        wanted: usize,
    },
    /// They have been taken: a dictionary is made once.
    Done,
}

impl Sampling {
    pub(super) fn new(wanted: usize) -> Self {
        Self::Waiting {
            samples: Vec::new(),
            wanted: wanted.max(1),
        }
    }

    /// An object is held. Gives the samples when they are enough.
    pub(super) fn saw(&mut self, object: &Arc<Object>) -> Option<Vec<Arc<Object>>> {
        let Self::Waiting { samples, wanted } = self else {
            return None;
        };
        samples.push(Arc::downgrade(object));
        if samples.len() < *wanted {
            return None;
        }
        samples.retain(|sample| sample.strong_count() > 0);
        if samples.len() < *wanted {
            return None;
        }
        let taken = samples.iter().filter_map(Weak::upgrade).collect();
        *self = Self::Done;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, value::to_raw_value};

    use super::*;
    use crate::store::{Form, Interner};

    fn object(name: u32) -> Arc<Object> {
        let raw = to_raw_value(&json!({"metadata": {"name": name.to_string(), "namespace": "n"}})).unwrap();
        let object = Object::parse(&raw, &mut Interner::plain(Form::new("v1", "ConfigMap")));
        object.unwrap().into()
    }

    #[test]
    fn samples_are_taken_once_there_are_enough_and_only_once() {
        let mut sampling = Sampling::new(3);
        let held: Vec<Arc<Object>> = (0..9).map(object).collect();
        let taken: Vec<usize> = held
            .iter()
            .map(|object| sampling.saw(object).map_or(0, |samples| samples.len()))
            .collect();
        assert_eq!(taken, [0, 0, 3, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_is_gone_is_no_sample_and_is_not_kept() {
        let mut sampling = Sampling::new(3);
        for changing in 0..50 {
            let object = object(changing);
            assert!(sampling.saw(&object).is_none());
        }
        let Sampling::Waiting { samples, .. } = &sampling else {
            panic!("samples were taken of objects that are gone");
        };
        assert!(samples.len() <= 3, "{}", samples.len());
    }
}

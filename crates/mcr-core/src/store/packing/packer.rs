//! The dictionaries of a fleet: one for each kind.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{Dictionary, Packing, PackingStatus, contexts::Contexts, samples::Sampling};
use crate::{
    fleet::StoreFormat,
    store::{Form, Kinds, Object},
    watch::WatchRequest,
};

/// So much is enough to learn from; more takes longer and finds no more.
const MOST_SAMPLED: usize = 1 << 20;

/// What packs the objects of a fleet.
pub(crate) struct Packers {
    packing: Packing,
    contexts: Arc<Contexts>,
    kinds: Kinds<Packer>,
    jobs: mpsc::UnboundedSender<Job>,
    waiting: Mutex<Option<mpsc::UnboundedReceiver<Job>>>,
}

/// A dictionary to be made; one for each kind.
struct Job {
    packer: Arc<Packer>,
    samples: Vec<Arc<Object>>,
}

/// What packs the objects of one kind.
pub(crate) struct Packer {
    packing: Packing,
    contexts: Arc<Contexts>,
    /// What new objects are held in.
    form: watch::Sender<Form>,
    sampling: Mutex<Sampling>,
    jobs: mpsc::UnboundedSender<Job>,
}

impl Packers {
    /// None if objects are not packed.
    pub(crate) fn of(format: &StoreFormat) -> Option<Self> {
        let StoreFormat::Packed(packing) = format else {
            return None;
        };
        let (jobs, waiting) = mpsc::unbounded_channel();
        Some(Self {
            packing: *packing,
            contexts: Arc::default(),
            kinds: Kinds::default(),
            jobs,
            waiting: Mutex::new(Some(waiting)),
        })
    }

    pub(crate) fn kind(&self, request: &WatchRequest) -> Arc<Packer> {
        self.kinds.get(request, || Packer {
            packing: self.packing,
            contexts: self.contexts.clone(),
            form: watch::Sender::new(request.form()),
            sampling: Mutex::new(Sampling::new(self.packing.samples)),
            jobs: self.jobs.clone(),
        })
    }

    pub(crate) fn status(&self) -> PackingStatus {
        self.contexts.status()
    }

    /// Makes dictionaries, one after the other, until the fleet stops. One that is being made then is waited for: it takes
    /// seconds at most.
    pub(crate) async fn run(&self, stop: CancellationToken) {
        let Some(mut jobs) = lock(&self.waiting).take() else {
            return;
        };
        while let Some(Some(Job { packer, samples })) = stop.run_until_cancelled(jobs.recv()).await {
            if tokio::task::spawn_blocking(move || packer.train(samples))
                .await
                .is_err()
            {
                tracing::error!("making a dictionary panicked; the objects of its kind stay as they are");
            }
        }
    }
}

impl Packer {
    /// Holds an object, packed if there is a dictionary.
    pub(crate) fn hold(self: &Arc<Self>, object: Object) -> Arc<Object> {
        let form = self.form.borrow().clone();
        if form.dictionary().is_some() {
            return Arc::new(object.in_form(&form).unwrap_or(object));
        }
        let object = Arc::new(object);
        let samples = lock(&self.sampling).saw(&object);
        if let Some(samples) = samples {
            let packer = self.clone();
            // Nobody listens any more once the fleet stops.
            let _ = self.jobs.send(Job { packer, samples });
        }
        object
    }

    /// Resolves when there is a dictionary. Cancel safe.
    pub(crate) async fn packed(&self) -> Form {
        let mut form = self.form.subscribe();
        let packed = form.wait_for(|form| form.dictionary().is_some()).await;
        // The sender is this packer's, so the wait ends with a dictionary only.
        packed.map_or_else(|_| self.form.borrow().clone(), |form| form.clone())
    }

    fn train(&self, objects: Vec<Arc<Object>>) {
        let mut left = MOST_SAMPLED;
        let mut samples = Vec::new();
        for object in objects {
            let Ok(sample) = object.rest_json() else { continue };
            if sample.len() <= left {
                left -= sample.len();
                samples.push(sample.into_owned());
            }
        }
        let form = self.form.borrow().clone();
        match Dictionary::train(&samples, &self.packing, &self.contexts) {
            Some(dictionary) => drop(self.form.send_replace(form.packed(dictionary))),
            None => {
                tracing::debug!("no dictionary can be made of the objects of a kind, which stay as they are")
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

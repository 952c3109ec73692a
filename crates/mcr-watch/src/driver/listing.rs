//! Which request comes next while the driver lists. Nothing in this module sends a request or waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use mcr_client::EndpointNumber;
use mcr_store::ListEnd;
use tokio::time::Instant;

use super::staged::Staged;
use crate::{
    budget::Reservation,
    error::WatchError,
    settings::WatchSettings,
    target::{Named, PlacedObject},
};

/// A page never asks for fewer objects.
const SMALLEST_PAGE: u32 = 10;

/// After this many failures in a row at one page the list begins anew. Its objects would otherwise keep their memory for ever.
const ATTEMPTS: u32 = 10;

/// A list with more pages in a row that have no object has no end.
const EMPTY_PAGES: u32 = 200;

/// A list that has no object for longer has no end, in times of [`WatchSettings::list_timeout`].
const EMPTY_FOR: u32 = 2;

/// A list of more pages has no end: even the smallest pages would be a million objects.
const PAGES: u32 = 100_000;

/// A list that takes longer has no end: so many times [`WatchSettings::list_timeout`], and at least an hour.
const LONGEST: u32 = 12;
const AN_HOUR: Duration = Duration::from_secs(3_600);

/// A request that fails after such a time was too much for the server, or for a proxy in front of it.
const LATE: Duration = Duration::from_secs(10);

/// What a list asks the API server for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The API server's cache, in one response. The cache may be behind.
    Cache,
    /// The newest state, in pages.
    Pages,
    /// The newest state, in one response.
    Whole,
}

/// How lists are divided into requests. It outlives single lists, because it learns from their failures.
#[derive(Debug)]
pub(super) struct Paging {
    /// The objects of a page at most.
    size: u32,
    /// [`WatchSettings::page_size`](crate::WatchSettings::page_size).
    largest: u32,
    /// A list in one response took too long or broke off.
    is_too_much_at_once: bool,
    /// A list in pages expired before it was complete.
    pages_expired: bool,
    /// False once a compressed list was unusable. Whoever writes objects could make all of them so: with a few of one letter, which
    /// grow much.
    pub(super) may_compress: bool,
}

impl Paging {
    pub(super) fn new(page_size: u32) -> Self {
        let largest = page_size.max(1);
        Self {
            size: largest,
            largest,
            is_too_much_at_once: false,
            pages_expired: false,
            may_compress: true,
        }
    }

    /// The objects of the next page at most.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// The source of the list that begins. `cache`: whether the target can use a state that is behind.
    pub(super) fn begin(&mut self, cache: bool) -> Source {
        // Once: a list that is too large for one response makes progress in pages only.
        if std::mem::take(&mut self.pages_expired) && !self.is_too_much_at_once {
            Source::Whole
        } else if cache && !self.is_too_much_at_once {
            Source::Cache
        } else {
            Source::Pages
        }
    }

    /// A response has arrived within this time.
    pub(super) fn succeeded(&mut self, took: Duration, limit: Duration) {
        if took < limit / 10 {
            self.size = self.size.saturating_mul(2).min(self.largest);
        }
    }

    /// A response took too long or broke off.
    pub(super) fn broke_off(&mut self, source: Source) {
        match source {
            Source::Pages => self.size = (self.size / 2).max(SMALLEST_PAGE.min(self.largest)),
            Source::Cache | Source::Whole => self.is_too_much_at_once = true,
        }
    }

    /// A response takes more memory than there is. Returns whether the next one is smaller.
    pub(super) fn shrinks(&mut self, source: Source) -> bool {
        let before = self.size;
        self.broke_off(source);
        source != Source::Pages || self.size < before
    }

    /// A request has failed before the head of a response came.
    pub(super) fn refused(&mut self, source: Source, took: Duration, error: &WatchError) {
        let late = match error {
            WatchError::Timeout(_) | WatchError::Transport(_) | WatchError::Api { code: 504, .. } => {
                took >= LATE
            }
            _ => false,
        };
        if late {
            self.broke_off(source);
        }
    }

    /// A list in pages could not be completed, or no watch could continue it, because the API server has forgotten its version.
    pub(super) fn expired(&mut self) {
        self.pages_expired = true;
    }

    /// A watch has continued from the last list.
    pub(super) fn watched(&mut self) {
        self.pages_expired = false;
    }
}

/// A list that is being read. Its objects wait here until all have arrived.
pub(super) struct Listing {
    pub(super) endpoint: EndpointNumber,
    pub(super) source: Source,
    /// The page that comes next; none for the first.
    pub(super) continue_token: Option<String>,
    /// The resource version of the first page. A watch from there reports all that changed between the pages, if those are of
    /// several versions.
    resource_version: Option<String>,
    /// Whether the pages are of several versions.
    is_inconsistent: bool,
    /// Whether a page has arrived since the token expired for the last time.
    advanced: bool,
    /// How often the current page has failed.
    failures: u32,
    /// Whether each object of the list is known. An object without a name may be any of those that the list lacks.
    pub(super) complete: bool,
    /// Whether the list repeats one that has left out the wrong places.
    pub(super) repeats: bool,
    /// Whether the last response was compressed.
    pub(super) is_compressed: bool,
    pub(super) staged: Staged,
    pub(super) reservation: Reservation,
    began: Instant,
    pages: u32,
    /// The objects of all pages, also those that are not staged.
    objects: usize,
    /// The pages since the last one with an object, and the time that they took.
    empty: (u32, Duration),
}

impl Listing {
    /// A list that begins. It leaves these places out.
    pub(super) fn new(
        endpoint: EndpointNumber,
        source: Source,
        reservation: Reservation,
        held_limit: Option<usize>,
        left_out: BTreeSet<Arc<str>>,
    ) -> Self {
        Self {
            endpoint,
            source,
            continue_token: None,
            resource_version: None,
            is_inconsistent: false,
            advanced: false,
            failures: 0,
            complete: true,
            repeats: false,
            is_compressed: false,
            staged: Staged::new(reservation.limit(), held_limit, left_out),
            reservation,
            began: Instant::now(),
            pages: 0,
            objects: 0,
            empty: (0, Duration::ZERO),
        }
    }

    /// A page has arrived, with so many objects, readable or not. Returns whether it was the last one.
    ///
    /// # Errors
    /// [`WatchError::ListWithoutEnd`] if there are more, and the list has had enough of them.
    pub(super) fn advance(
        &mut self,
        end: ListEnd,
        (objects, took): (usize, Duration),
        settings: &WatchSettings,
    ) -> Result<bool, WatchError> {
        self.resource_version.get_or_insert(end.resource_version);
        (self.advanced, self.failures) = (true, 0);
        self.continue_token = end.continue_token;
        self.staged.end_page();
        self.pages += 1;
        self.objects += objects;
        self.empty = match objects {
            0 => (self.empty.0 + 1, self.empty.1 + took),
            _ => (0, Duration::ZERO),
        };
        if self.continue_token.is_none() {
            return Ok(true);
        }
        let (timeout, all) = (settings.list_timeout, self.began.elapsed());
        if self.empty.0 >= EMPTY_PAGES
            || self.empty.1 >= timeout * EMPTY_FOR
            || self.pages >= PAGES
            || all >= (timeout * LONGEST).max(AN_HOUR)
        {
            return Err(WatchError::ListWithoutEnd {
                pages: self.pages,
                objects: self.objects,
                took: all,
            });
        }
        Ok(false)
    }

    /// The version of the list has expired. `token` continues it at a newer version. Returns whether the list goes on.
    pub(super) fn expired(&mut self, token: Option<String>) -> bool {
        // A server whose tokens expire at once would be asked in a tight loop.
        if token.is_none() || !std::mem::take(&mut self.advanced) {
            return false;
        }
        self.continue_token = token;
        self.is_inconsistent = true;
        true
    }

    /// A page has failed. Returns whether those before it are of use: the same page is asked for again.
    pub(super) fn resumes_after(&mut self, error: &WatchError) -> bool {
        self.failures += 1;
        self.failures < ATTEMPTS
            && self.continue_token.is_some()
            && match error {
                WatchError::Timeout(_) | WatchError::Transport(_) | WatchError::TooManyRequests { .. } => {
                    true
                }
                WatchError::Unauthorized => true,
                WatchError::Api { code, .. } => *code >= 500,
                _ => false,
            }
    }

    /// Whether a watch may be unable to continue from [`resource_version`](Self::resource_version), which is old by now.
    pub(super) fn is_inconsistent(&self) -> bool {
        self.is_inconsistent
    }

    /// The objects that are newer than the version from which a watch continues, because their pages are. That watch repeats what
    /// happened to them before.
    pub(super) fn ahead(&self) -> Ahead {
        let at: Option<u64> = self.resource_version.as_deref().and_then(|at| at.parse().ok());
        let (true, Some(at)) = (self.is_inconsistent, at) else {
            return Ahead::default();
        };
        let listed = self
            .staged
            .objects
            .iter()
            .map(|placed| (placed.named(), placed.version()));
        Ahead(listed.filter(|(_, version)| *version > at).collect())
    }

    /// Where a watch continues. Empty before the first page.
    pub(super) fn resource_version(&self) -> String {
        self.resource_version.clone().unwrap_or_default()
    }
}

/// Objects that a list brought in a newer state than the watch after it has reached, with their resource versions: those that
/// changed while the list was read.
#[derive(Default)]
pub(super) struct Ahead(BTreeMap<Named, u64>);

impl Ahead {
    /// Whether an event is older than what the list brought of its object.
    pub(super) fn is_repetition(&mut self, event: &PlacedObject) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let named = event.named();
        let repeats = self.0.get(&named).is_some_and(|listed| event.version() < *listed);
        if !repeats {
            self.0.remove(&named);
        }
        repeats
    }
}

#[cfg(test)]
mod tests;

//! Reads a list, and applies it when it is complete.

use mcr_store::ListEnd;
use tokio::time::{Instant, timeout};

use super::{
    Driver,
    api::{PageError, PageRequest},
    listing::Listing,
    page::Page,
    progress::Position,
};
use crate::{WatchError, target::PlacedObject};

impl Driver {
    /// Lists everything, so that a watch can continue from there.
    pub(super) async fn list(&mut self, endpoint: u64) -> Result<(), WatchError> {
        let started = Instant::now();
        let mut listing = self.listing(endpoint).await;
        // Boxed: thousands of tasks wait for bytes, and need no room for what comes after it.
        if let Err(error) = Box::pin(self.read_pages(&mut listing)).await {
            if let WatchError::ListBudgetSpent { bytes, .. } = &error {
                self.needed = *bytes;
            }
            if listing.resumes_after(&error) {
                listing.reservation.rest(listing.bytes);
                self.listing = Some(listing);
            }
            return Err(error);
        }
        self.needed = 0;
        if listing.is_inconsistent() {
            self.paging.expired();
        }
        let resource_version = listing.resource_version();
        self.ahead = listing.ahead();
        self.apply_list(*listing).await;
        self.unreadable.list_completed();
        self.env.counts.listed(started.elapsed());
        self.progress.listed(Position {
            endpoint,
            resource_version,
        });
        tracing::debug!(
            cluster = %self.env.cluster, kind = %self.kind,
            objects = self.target.objects(), took = ?started.elapsed(), "listed"
        );
        Ok(())
    }

    /// The list that can be resumed, or a new one.
    async fn listing(&mut self, endpoint: u64) -> Box<Listing> {
        if let Some(listing) = self.listing.take() {
            if listing.endpoint == endpoint {
                return listing;
            }
            self.target.abort_listing();
        }
        let reservation = self.env.list_budget.begin_with(self.needed).await;
        self.unreadable.list_started();
        self.target.begin_listing();
        let source = self.paging.begin(self.target.may_list_from_cache());
        Box::new(Listing::new(endpoint, source, reservation))
    }

    /// Reads pages until the list is complete.
    async fn read_pages(&mut self, listing: &mut Listing) -> Result<(), WatchError> {
        let limit = self.env.settings.list_timeout;
        loop {
            // This wait does not count: the cluster can't help it.
            listing.reservation.begin_again().await;
            let (objects, bytes) = (listing.objects.len(), listing.bytes);
            let asked = Instant::now();
            let page = timeout(limit, self.read_page(listing)).await;
            match page.unwrap_or(Err(PageError::Body(WatchError::Timeout(limit)))) {
                Ok(end) => {
                    self.paging.succeeded(asked.elapsed(), limit);
                    if listing.advance(end) {
                        return Ok(());
                    }
                }
                Err(PageError::Expired { continue_token }) => {
                    if !listing.expired(continue_token) {
                        self.paging.expired();
                        return Err(WatchError::Expired);
                    }
                }
                Err(PageError::Refused(error)) => return Err(error),
                Err(PageError::Body(error)) => {
                    listing.objects.truncate(objects);
                    listing.bytes = bytes;
                    if matches!(error, WatchError::Timeout(_) | WatchError::Transport(_)) {
                        self.paging.broke_off(listing.source);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Reads one page into the list.
    async fn read_page(&mut self, listing: &mut Listing) -> Result<ListEnd, PageError> {
        let request = PageRequest {
            kind: &self.kind,
            source: listing.source,
            size: self.paging.size(),
            continue_token: listing.continue_token.as_deref(),
        };
        let mut page = Page::request(&self.env, request, &mut listing.reservation).await?;
        loop {
            let objects = page.read(&mut listing.reservation, listing.bytes).await;
            let Some(objects) = objects.map_err(PageError::Body)? else {
                break;
            };
            for (i, item) in objects.iter().enumerate() {
                match self.encode(item) {
                    Ok(Some(object)) => {
                        listing.bytes += size_of::<PlacedObject>() + object.object.held_bytes();
                        listing.objects.push(object);
                        self.held.list(listing.bytes).map_err(PageError::Body)?;
                    }
                    Ok(None) => {}
                    // An object without a name may be any of those that the list lacks.
                    Err(unreadable) => listing.complete &= unreadable.error.key.is_some(),
                }
                // Decoding a large list must not hold up the other clusters of this thread.
                if i % 256 == 255 {
                    tokio::task::yield_now().await;
                }
            }
        }
        page.finish().map_err(PageError::Body)
    }

    /// Puts the objects of a complete list into the target.
    async fn apply_list(&mut self, listing: Listing) {
        self.progress.list_brings_objects();
        let Listing {
            objects,
            mut complete,
            // Held until the objects are in the target.
            reservation: _reservation,
            ..
        } = listing;
        for (i, object) in objects.into_iter().enumerate() {
            let put = self.put(&object, true);
            complete &= !put.is_err_and(|unreadable| unreadable.error.key.is_none());
            if i % 256 == 255 {
                tokio::task::yield_now().await;
            }
        }
        self.target.finish_listing(complete);
    }
}

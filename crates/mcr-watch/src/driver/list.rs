//! Reads a list, and applies it when it is complete.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use mcr_client::EndpointNumber;
use mcr_store::ListEnd;
use tokio::time::{Instant, timeout};

use super::{
    Driver,
    api::{PageError, PageRequest},
    listing::{Listing, Source},
    page::Page,
    progress::Position,
};
use crate::{
    error::WatchError,
    status::WatchProblem,
    target::{LeftOut, PlacedObject, TargetEvent},
};

/// The longest time after a list until the target may ask for the next one.
const LONGEST_RELIST_PAUSE: Duration = Duration::from_secs(300);

impl Driver {
    /// Lists everything, so that a watch can continue from there.
    pub(super) async fn list(&mut self, endpoint: EndpointNumber) -> Result<(), WatchError> {
        let started = Instant::now();
        self.left_out.list_started(started);
        let mut listing = self.listing(endpoint).await;
        loop {
            // Boxed: thousands of tasks wait for bytes, and need no room for what comes after it.
            if let Err(error) = Box::pin(self.read_pages(&mut listing)).await {
                if let WatchError::ListBudgetSpent { bytes, .. } = &error {
                    self.needed = *bytes;
                }
                if listing.resumes_after(&error) {
                    listing.reservation.rest(listing.staged.bytes);
                    self.listing = Some(listing);
                }
                return Err(error);
            }
            match listing.staged.others_to_leave_out() {
                // Once: now it is known what the objects of each place take.
                Some(places) if !listing.repeats => {
                    drop(listing);
                    self.report(TargetEvent::ListFailed);
                    listing = self.new_listing(endpoint, places).await;
                    listing.repeats = true;
                }
                others => {
                    self.left_out.list_completed(others.is_some());
                    break;
                }
            }
        }
        self.needed = 0;
        if listing.is_inconsistent() {
            self.paging.expired();
        }
        let resource_version = listing.resource_version();
        self.ahead = listing.ahead();
        let objects = listing.staged.objects.len();
        self.apply_list(*listing).await;
        self.unreadable.list_completed();
        let took = started.elapsed();
        self.env.counts.listed(took);
        // Who may ask for lists of a whole endpoint, as a tenant of a scope, must not keep it busy with them.
        self.relist_not_before = Instant::now() + (took * 10).min(LONGEST_RELIST_PAUSE);
        self.progress.listed(Position {
            endpoint,
            resource_version,
        });
        tracing::debug!(
            cluster = %self.env.cluster, kind = %self.kind,
            objects, ?took, "listed"
        );
        Ok(())
    }

    /// The list that can be resumed, or a new one.
    async fn listing(&mut self, endpoint: EndpointNumber) -> Box<Listing> {
        if let Some(listing) = self.listing.take() {
            if listing.endpoint == endpoint {
                return listing;
            }
            self.report(TargetEvent::ListFailed);
        }
        let left_out = self.left_out.places.keys().cloned().collect();
        self.new_listing(endpoint, left_out).await
    }

    async fn new_listing(&mut self, endpoint: EndpointNumber, left_out: BTreeSet<Arc<str>>) -> Box<Listing> {
        let env = &self.env;
        let reservation = env.list_budget.begin_with(env.cluster.clone(), self.needed).await;
        let held_limit = env.settings.held_bytes;
        self.unreadable.list_started();
        self.report(TargetEvent::ListBegins);
        // After the list has begun: what somebody brings from now on waits for the next list.
        let source = self
            .paging
            .begin(!self.progress.holds_objects() && !self.target.needs_newest());
        Box::new(Listing::new(endpoint, source, reservation, held_limit, left_out))
    }

    /// Reads pages until the list is complete.
    async fn read_pages(&mut self, listing: &mut Listing) -> Result<(), WatchError> {
        let limit = self.env.settings.list_timeout;
        loop {
            // This wait does not count: the cluster can't help it.
            listing.reservation.begin_again().await;
            let asked = Instant::now();
            let page = timeout(limit, self.read_page(listing)).await;
            let page = page.unwrap_or(Err(PageError::Body(WatchError::Timeout(limit))));
            if let Err(PageError::Refused(error) | PageError::Body(error)) = &page
                && matches!(error, WatchError::ListTooLarge { .. })
            {
                listing.staged.drop_page();
                // It may have been this page alone.
                if listing.staged.has_room() && self.paging.shrinks(listing.source) {
                    listing.source = Source::Pages;
                    continue;
                }
            }
            match page {
                Ok((end, objects)) => {
                    let took = asked.elapsed();
                    self.paging.succeeded(took, limit);
                    if listing.advance(end, (objects, took), &self.env.settings)? {
                        return Ok(());
                    }
                }
                Err(PageError::Expired { continue_token }) => {
                    if !listing.expired(continue_token) {
                        self.paging.expired();
                        return Err(WatchError::Expired);
                    }
                }
                Err(PageError::Refused(error)) => {
                    self.paging.refused(listing.source, asked.elapsed(), &error);
                    return Err(error);
                }
                Err(PageError::Body(error)) => {
                    listing.staged.drop_page();
                    match error {
                        WatchError::Timeout(_) | WatchError::Transport(_) => {
                            self.paging.broke_off(listing.source);
                        }
                        WatchError::Malformed(_) if listing.is_compressed => self.paging.may_compress = false,
                        _ => {}
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Reads one page into the list. Returns its end, and the number of its objects.
    async fn read_page(&mut self, listing: &mut Listing) -> Result<(ListEnd, usize), PageError> {
        let mut count = 0;
        let request = PageRequest {
            kind: &self.kind,
            source: listing.source,
            size: self.paging.size(),
            continue_token: listing.continue_token.as_deref(),
            may_compress: self.paging.may_compress,
        };
        let mut page = Page::request(&self.env, request, &mut listing.reservation).await?;
        listing.is_compressed = page.is_compressed();
        loop {
            let objects = page.read(&mut listing.reservation, &mut listing.staged).await;
            let Some(objects) = objects.map_err(PageError::Body)? else {
                break;
            };
            for (i, item) in objects.iter().enumerate() {
                count += 1;
                match self.encode(item) {
                    Ok(Some(object)) => listing.staged.add(object).map_err(PageError::Body)?,
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
        let end = page.finish().map_err(PageError::Body)?;
        Ok((end, count))
    }

    /// Puts the objects of a complete list into the target.
    async fn apply_list(&mut self, listing: Listing) {
        self.progress.list_brings_objects();
        self.leave_out_places(listing.staged.reasons());
        let Listing {
            staged,
            mut complete,
            // Held until the objects are in the target.
            reservation: _reservation,
            ..
        } = listing;
        for (i, object) in staged.objects.into_iter().enumerate() {
            let put = self.put(&object, true);
            complete &= !put.is_err_and(|unreadable| unreadable.error.key.is_none());
            if i % 256 == 255 {
                tokio::task::yield_now().await;
            }
        }
        self.report(TargetEvent::Listed {
            complete,
            left_out: &self.left_out.places,
        });
    }

    /// Checks that the target holds no more than it may where this object belongs.
    pub(super) fn check_held(&mut self, PlacedObject { place, .. }: &PlacedObject) -> Result<(), WatchError> {
        let Some(limit) = self.env.settings.held_bytes else {
            return Ok(());
        };
        let bytes = self.target.held_bytes(place.as_deref());
        match place {
            _ if bytes <= limit => {}
            None => return Err(WatchError::HoldsTooMuch { bytes, limit }),
            Some(place) if !self.left_out.places.contains_key(place) => {
                let setting = "WatchSettings::held_bytes";
                let error = WatchError::PlaceTooLarge {
                    bytes,
                    limit,
                    setting,
                };
                let mut places = self.left_out.places.clone();
                places.insert(place.clone(), WatchProblem::new(error));
                self.leave_out_places(places);
                self.left_out.changed();
                self.report(TargetEvent::LeftOut(&self.left_out.places));
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Leaves these places out, and no others.
    pub(super) fn leave_out_places(&mut self, mut places: LeftOut) {
        let before = &self.left_out.places;
        if places.is_empty() && before.is_empty() {
            return;
        }
        let (cluster, kind) = (&self.env.cluster, &self.kind);
        for (place, problem) in &mut places {
            if let Some(known) = before.get(place) {
                problem.since = known.since;
                continue;
            }
            let error = &problem.error;
            self.env.counts.failure(error);
            tracing::warn!(%cluster, %kind, %place, %error, "the objects of a place are left out; the others go on");
        }
        for place in before.keys().filter(|place| !places.contains_key(*place)) {
            tracing::info!(%cluster, %kind, %place, "the objects of a place are no longer left out");
        }
        self.left_out.places = places;
    }
}

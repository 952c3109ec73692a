//! The decisions of a candidate. They are without I/O and clock: each method gets the time from its caller.
//!
//! A candidate *believes* while it considers itself the leader. Two candidates never believe at the same time:
//!
//! - A holder believes until `renew_deadline` after it **sent** its last successful write. The API server applied that
//!   write later, and a rival read it still later.
//! - A rival overwrites another candidate's record only after the record has not changed for its whole duration,
//!   measured by the rival's clock. That duration is longer than the holder's `renew_deadline`. The write names the
//!   version that the rival has read. The rival waits for the longest duration that it has ever read: a holder that
//!   wrote a longer duration may believe after its record was deleted or replaced by one with a shorter duration.
//! - A Lease that is missing, or that no candidate has written, proves nothing about the past, because somebody may
//!   have deleted it while its holder believed. A candidate that creates such a Lease first *claims* it: it writes its
//!   name, waits for the longest duration, and believes only after another write to the same object. Until then every
//!   earlier holder has stopped.
//! - A candidate begins to believe with a successful write that it sent after all of these waits. So the object was
//!   this candidate's during the whole wait.

use std::{sync::Arc, time::Duration};

use crate::record::Record;

/// If a Lease without a holder has at most this duration, its holder has released it.
const RELEASED: Duration = Duration::from_secs(1);

/// The longest duration in another candidate's record that a candidate remembers. Without this limit, a mistyped
/// duration would keep the candidate waiting after the Lease was corrected.
const LONGEST_REMEMBERED: Duration = Duration::from_secs(3600);

/// The durations of a candidate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Durations {
    pub(crate) lease: Duration,
    pub(crate) renew_deadline: Duration,
    pub(crate) retry_period: Duration,
}

impl Durations {
    /// The time after a renewal at which the work of a lost term must have ended: halfway between the loss and the first
    /// moment at which another candidate can lead.
    pub(crate) fn stop_after(&self) -> Duration {
        self.renew_deadline + (self.lease - self.renew_deadline) / 2
    }
}

/// What the candidate does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Wait(Duration),
    Read,
    Create,
    Update,
}

/// A term in which this candidate leads. All times are on the clock of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Term {
    /// Zero before the first term.
    pub(crate) number: u64,
    /// The candidate leads before this time. Zero after a loss.
    pub(crate) held_until: Duration,
    /// Work of the term must have ended at this time.
    pub(crate) stop_by: Duration,
}

/// The Lease as it was last read or written.
#[derive(Debug, Clone)]
enum Seen {
    Never,
    Absent,
    Record(Record),
}

/// The state of a candidate.
#[derive(Debug, Clone)]
pub(crate) struct Decision {
    pub(crate) identity: Arc<str>,
    pub(crate) durations: Durations,
    seen: Seen,
    /// Whether the server has another version than `seen`.
    outdated: bool,
    /// From this time on, no candidate believes because of a write before `seen`. `None`: the time is not known yet.
    clear_from: Option<Duration>,
    /// The longest duration that was read, and at least the candidate's own.
    longest: Duration,
    /// From this time on, no holder of a deleted object believes.
    vanished_until: Duration,
    next: Duration,
    rejections: u32,
    term: Term,
}

impl Decision {
    pub(crate) fn new(identity: Arc<str>, durations: Durations) -> Self {
        Self {
            identity,
            durations,
            seen: Seen::Never,
            outdated: false,
            clear_from: None,
            longest: durations.lease,
            vanished_until: Duration::ZERO,
            next: Duration::ZERO,
            rejections: 0,
            term: Term::default(),
        }
    }

    pub(crate) fn term(&self) -> Term {
        self.term
    }

    pub(crate) fn is_held(&self, now: Duration) -> bool {
        now < self.term.held_until
    }

    /// The holder in the record that was last read or written.
    pub(crate) fn holder(&self) -> Option<&str> {
        match &self.seen {
            Seen::Record(record) => record.holder.as_deref(),
            Seen::Never | Seen::Absent => None,
        }
    }

    /// Whether this candidate may release the record. It may not release a mere claim: a released record tells others
    /// that nobody believes, but an earlier holder may still believe.
    pub(crate) fn may_release(&self, now: Duration) -> bool {
        self.is_mine() && self.clear_from.is_some_and(|clear| clear <= now)
    }

    /// How long this candidate waits for others: the longest duration that it has read in the Lease.
    pub(crate) fn longest(&self) -> Duration {
        self.longest
    }

    fn is_mine(&self) -> bool {
        self.holder() == Some(&self.identity)
    }

    pub(crate) fn step(&self, now: Duration) -> Step {
        if now < self.next {
            return Step::Wait(self.next);
        }
        match &self.seen {
            _ if self.outdated => Step::Read,
            Seen::Never => Step::Read,
            Seen::Absent => Step::Create,
            Seen::Record(_) if self.is_mine() => Step::Update,
            // Without `clear_from`, no candidate has written the record, so it can be claimed.
            Seen::Record(_) if self.clear_from.is_none_or(|clear| clear <= now) => Step::Update,
            Seen::Record(_) => Step::Read,
        }
    }

    /// A read has ended. `None`: the Lease does not exist.
    pub(crate) fn read(&mut self, now: Duration, record: Option<Record>) {
        self.outdated = false;
        self.next = now;
        let held = self.is_held(now);
        let is_known = |uid: Option<&str>| matches!(&self.seen, Seen::Record(seen) if uid == Some(&seen.uid));
        let vanished =
            matches!(self.seen, Seen::Record(_)) && !is_known(record.as_ref().map(|new| &*new.uid));
        if vanished {
            self.vanished_until = now + self.longest;
        }
        let Some(record) = record else {
            // A holder creates the Lease again while it believes. Any other candidate first waits for that, and then
            // claims the Lease.
            self.seen = Seen::Absent;
            if !held {
                self.clear_from = None;
                if vanished {
                    self.next = now + self.durations.retry_period * 3 / 2;
                }
            }
            return;
        };
        let (same_object, same_version) = match &self.seen {
            Seen::Record(seen) => (seen.uid == record.uid, *seen == record),
            Seen::Never | Seen::Absent => (false, false),
        };
        let duration = record.duration.unwrap_or(self.durations.lease);
        self.longest = self.longest.max(duration.min(LONGEST_REMEMBERED));
        if record.holder.as_deref() == Some(&self.identity) {
            // This candidate has written the record. The response may have been lost.
            if !held && (!same_object || self.clear_from.is_none()) {
                self.clear_from = Some(now + self.longest);
            }
            self.seen = Seen::Record(record);
            self.continue_at(now);
            return;
        }
        self.lose();
        if !same_version {
            self.rejections = 0;
            self.clear_from = match &record.holder {
                Some(_) => Some(now + duration.max(self.longest)),
                // A record that client-go or this crate has released. If somebody has merely removed the holder from
                // the record, that holder may still believe.
                None => {
                    let released =
                        record.written && record.duration.is_some_and(|duration| duration <= RELEASED);
                    released.then_some(now.max(self.vanished_until))
                }
            };
        }
        self.seen = Seen::Record(record);
        if let Some(clear) = self.clear_from
            && clear > now
        {
            // Reads more often than the holder renews, so that another candidate leads within `lease` plus
            // `retry_period`.
            self.next = clear.min(now + self.durations.retry_period * 3 / 4);
        }
    }

    /// A write has succeeded. `sent` is the time before the request was sent.
    pub(crate) fn written(&mut self, sent: Duration, now: Duration, record: Record) {
        let held = self.is_held(now);
        let same_object = matches!(&self.seen, Seen::Record(seen) if seen.uid == record.uid);
        if !held && (!same_object || self.clear_from.is_none()) {
            self.clear_from = Some(now + self.longest);
        }
        self.seen = Seen::Record(record);
        (self.outdated, self.rejections) = (false, 0);
        self.continue_at(sent + self.durations.retry_period);
        let clear = held || self.clear_from.is_some_and(|clear| clear <= sent);
        let held_until = sent + self.durations.renew_deadline;
        if clear && now < held_until {
            self.term = Term {
                number: self.term.number + u64::from(!held),
                held_until,
                stop_by: sent + self.durations.stop_after(),
            };
        }
    }

    /// The server has refused a write: the Lease has another version, exists already, or does not exist any more.
    pub(crate) fn rejected(&mut self, now: Duration) {
        self.outdated = true;
        self.rejections = self.rejections.saturating_add(1);
        // Pauses between requests even if the server refuses all of them.
        self.next = match self.rejections {
            1 => now,
            _ => now + self.durations.retry_period,
        };
    }

    /// A request has failed. Whether it had an effect is not known.
    pub(crate) fn failed(&mut self, now: Duration) {
        self.continue_at(now + self.durations.retry_period);
    }

    /// Ends the term at once.
    pub(crate) fn lose(&mut self) {
        (self.term.held_until, self.term.stop_by) = (Duration::ZERO, Duration::ZERO);
    }

    /// Continues at `at`, or earlier if the wait for others ends earlier.
    fn continue_at(&mut self, at: Duration) {
        self.next = match self.clear_from {
            Some(clear) if clear > self.next && clear < at => clear,
            _ => at,
        };
    }
}

#[cfg(test)]
mod tests;

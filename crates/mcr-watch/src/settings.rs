//! Timeouts and sizes of watches.

use std::time::Duration;

use mcr_client::UserAgent;

/// How lists and watches behave. The defaults suit fleets of any size.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WatchSettings {
    /// The timeout of one page of a list, from the request to the last byte. Default 5 minutes. A page that takes longer is asked for
    /// again with fewer objects. A list has no end, and fails with [`WatchError::ListWithoutEnd`](crate::WatchError::ListWithoutEnd),
    /// after 200 pages in a row without an object, after pages without an object that took twice this time together, after
    /// 100,000 pages, and after 12 times this time, but at least an hour.
    pub list_timeout: Duration,
    /// How many objects a page of a repeated list has at most. The first list comes in one response, from the API server's cache.
    /// Default 500.
    pub page_size: u32,
    /// How long the API server is asked to keep a watch open. Each watch asks for up to a tenth less, at random. Default
    /// 290 seconds.
    pub watch_timeout: Duration,
    /// How long a watch that has received bookmarks may be silent; API servers send bookmarks every minute. After that
    /// its connection counts as dead, and the watch continues over another one. Default 150 seconds.
    pub silence_timeout: Duration,
    /// The longest pause between attempts for a kind that can't be listed. Default 15 seconds. A kind that is too large, see
    /// [`list_bytes`](Self::list_bytes) and [`held_bytes`](Self::held_bytes), is tried again after 5 minutes, because each
    /// attempt transfers it again.
    pub retry_cap: Duration,
    /// The memory that one list may take until it is complete, in bytes: the part of it that was read last, and its objects in
    /// their compact form. A larger list fails with [`WatchError::ListTooLarge`](crate::WatchError::ListTooLarge). Behind a scope
    /// endpoint, one list has the objects of all clusters: it leaves out the clusters with the largest objects, which are blocked
    /// with [`WatchError::PlaceTooLarge`](crate::WatchError::PlaceTooLarge), until those of the others fit. Default 256 MiB.
    pub list_bytes: usize,
    /// The memory that all lists of the fleet may take together until they are complete, in bytes; those of one cluster at most
    /// half of it, also if [`list_bytes`](Self::list_bytes) is more. Each list begins with a 32nd of it (at least 1 MiB and at
    /// most 16 MiB) and waits for its turn if that is not free. A list that needs more waits
    /// up to 10 seconds, and then fails with [`WatchError::ListBudgetSpent`](crate::WatchError::ListBudgetSpent). Default
    /// 512 MiB; less than 1 MiB counts as 1 MiB.
    pub fleet_list_bytes: usize,
    /// The memory that the objects of one kind in one cluster may take, in bytes. A watch with more fails with
    /// [`WatchError::HoldsTooMuch`](crate::WatchError::HoldsTooMuch); its store stays readable and is no longer kept up to
    /// date. Behind a scope endpoint only that cluster is blocked, with
    /// [`WatchError::PlaceTooLarge`](crate::WatchError::PlaceTooLarge). Default none: no limit.
    pub held_bytes: Option<usize>,
    /// The User-Agent of a [`HubWatch`](crate::HubWatch). A fleet sets it to its own.
    pub user_agent: UserAgent,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self {
            list_timeout: Duration::from_secs(300),
            page_size: 500,
            watch_timeout: Duration::from_secs(290),
            silence_timeout: Duration::from_secs(150),
            retry_cap: Duration::from_secs(15),
            list_bytes: 256 << 20,
            fleet_list_bytes: 512 << 20,
            held_bytes: None,
            user_agent: UserAgent::default(),
        }
    }
}

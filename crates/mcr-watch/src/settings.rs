//! Timeouts and sizes of watches.

use std::time::Duration;

/// How lists and watches behave. The defaults suit fleets of any size.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WatchSettings {
    /// The timeout of a list, from the request to the last byte of the last page. Default 5 minutes.
    pub list_timeout: Duration,
    /// How many objects a page of a repeated list has. The first list is one page, from the API server's cache. Default
    /// 500.
    pub page_size: u32,
    /// How long the API server is asked to keep a watch open. Each watch asks for up to a tenth less, at random. Default
    /// 290 seconds.
    pub watch_timeout: Duration,
    /// How long a watch that has received bookmarks may be silent; API servers send bookmarks every minute. After that
    /// its connection counts as dead, and the watch continues over another one. Default 150 seconds.
    pub silence_timeout: Duration,
    /// The longest pause between attempts for a kind that can't be listed. Default 15 seconds.
    pub retry_cap: Duration,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self {
            list_timeout: Duration::from_secs(300),
            page_size: 500,
            watch_timeout: Duration::from_secs(290),
            silence_timeout: Duration::from_secs(150),
            retry_cap: Duration::from_secs(15),
        }
    }
}

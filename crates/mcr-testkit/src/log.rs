//! Captures the log of a test as text.
//!
//! ```
//! use mcr_testkit::log::Log;
//! use tracing::Level;
//!
//! let log = Log::of_this_thread(Level::INFO);
//! tracing::info!(cluster = "a", "cluster is gone");
//! tracing::debug!("too fine");
//! assert!(log.text().ends_with("cluster is gone cluster=\"a\"\n"));
//! assert_eq!(log.lines_with("gone").len(), 1);
//! assert!(!log.text().contains("too fine"));
//! ```

use std::io::{self, Write};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tracing::{Dispatch, Level, Subscriber, subscriber::DefaultGuard};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Captures the log lines of the current thread until it is dropped. Does not capture the lines of other tests in the
/// process.
///
/// Lines of other threads are missing too. So use it in tests whose runtime has one thread, such as those with
/// `#[tokio::test]`.
#[derive(Debug)]
pub struct Log {
    text: Text,
    _guard: Option<DefaultGuard>,
    // A second subscriber in the process. If there was only one, tracing would ask only the subscriber of the first
    // thread that reaches a log statement whether it is enabled, and cache the answer for all threads. If that thread
    // had no `Log`, the lines would be lost for all threads.
    _second: Option<Dispatch>,
}

impl Log {
    /// Starts to capture the lines of this thread up to `level`.
    pub fn of_this_thread(level: Level) -> Self {
        let text = Text::default();
        let _second = Some(Dispatch::new(tracing_subscriber::registry()));
        Self {
            _guard: Some(tracing::subscriber::set_default(text.subscriber(level))),
            text,
            _second,
        }
    }

    /// Captures everything that this process logs after the first call, at every level and from every library.
    pub fn of_this_process() -> Self {
        static ALL: LazyLock<Text> = LazyLock::new(|| {
            let text = Text::default();
            text.subscriber(Level::TRACE).init();
            text
        });
        Self {
            text: ALL.clone(),
            _guard: None,
            _second: None,
        }
    }

    /// The captured log: one line for each event, without times and colours.
    pub fn text(&self) -> String {
        let text = self.text.0.lock();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The lines that contain `words`.
    pub fn lines_with(&self, words: &str) -> Vec<String> {
        let text = self.text();
        let lines = text.lines().filter(|line| line.contains(words));
        lines.map(str::to_owned).collect()
    }
}

#[derive(Clone, Debug, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Text {
    fn subscriber(&self, level: Level) -> impl Subscriber + Send + Sync + use<> {
        let writer = self.clone();
        tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .without_time()
            .with_writer(move || writer.clone())
            .finish()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut text = self.0.lock();
        text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails without the second subscriber, because tracing caches that the first thread did not want the line.
    #[test]
    fn what_a_thread_without_a_log_logs_first_is_not_lost_for_others() {
        fn log_line() {
            tracing::info!("said");
        }
        let log = Log::of_this_thread(Level::INFO);
        std::thread::spawn(log_line).join().unwrap();
        assert_eq!(log.text(), "");
        log_line();
        assert!(log.text().ends_with(": said\n"), "{}", log.text());
    }
}

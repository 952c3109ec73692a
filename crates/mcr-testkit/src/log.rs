//! What a test logs, as text that it can look at.
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
use std::sync::{Arc, Mutex};

use tracing::{Dispatch, Level, subscriber::DefaultGuard};

use crate::lock::lock;

/// Takes what the current thread logs until it is dropped; other tests of the process are not in it.
///
/// What other threads do is missing: use it in tests whose runtime has one thread, which is how `#[tokio::test]`
/// makes it.
#[derive(Debug)]
pub struct Log {
    text: Text,
    _guard: DefaultGuard,
    // With only one subscriber in the process tracing asks the current thread's whether a line is wanted at all, and
    // keeps the answer for all threads: if a test without a log comes first, that is no.
    _second: Dispatch,
}

impl Log {
    /// Begins to take lines up to `level`.
    pub fn of_this_thread(level: Level) -> Self {
        let text = Text::default();
        let writer = text.clone();
        let _second = Dispatch::new(tracing_subscriber::registry());
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .without_time()
            .with_writer(move || writer.clone())
            .finish();
        Self {
            text,
            _guard: tracing::subscriber::set_default(subscriber),
            _second,
        }
    }

    /// All that was logged, a line each, without times and colours.
    pub fn text(&self) -> String {
        let text = lock(&self.text.0);
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

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut text = lock(&self.0);
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

    /// Fails without the second subscriber: tracing remembers that the first thread did not want the line.
    #[test]
    fn what_a_thread_without_a_log_logs_first_is_not_lost_for_others() {
        fn say() {
            tracing::info!("said");
        }
        let log = Log::of_this_thread(Level::INFO);
        std::thread::spawn(say).join().unwrap();
        assert_eq!(log.text(), "");
        say();
        assert!(log.text().ends_with(": said\n"), "{}", log.text());
    }
}

//! What the examples print.

use std::{
    fmt,
    io::{self, Write},
    num::NonZeroU64,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use mcr::args::LogArgs;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::stop_at_signal;

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Flags about output, log and the end of a program.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct OutputArgs {
    /// How to print
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    pub format: Format,
    /// End after this many lines of data
    #[arg(long, value_name = "LINES", help_heading = "Output")]
    pub count: Option<NonZeroU64>,
    /// End after this time
    #[arg(long, value_name = "SECONDS", value_parser = seconds, help_heading = "Output")]
    pub exit_after: Option<Duration>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "its text would become a help text of every example")]
    pub log: LogArgs,
}

impl OutputArgs {
    /// Starts the log. Returns the output, and the token that ends the program: at a signal, after `--exit-after`, after `--count` lines,
    /// and when whoever read the output has gone.
    ///
    /// # Errors
    /// If signals can't be listened to.
    pub fn start(&self) -> anyhow::Result<(Output, CancellationToken)> {
        self.log.init_log();
        let stop = stop_at_signal(self.exit_after)?;
        let left = self.count.map_or(u64::MAX, NonZeroU64::get);
        let output = Output {
            format: self.format,
            left: Arc::new(Mutex::new(left)),
            stop: stop.clone(),
        };
        Ok((output, stop))
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Prints data to stdout, a line at a time and flushed, so that whoever reads along sees it at once.
#[derive(Debug, Clone)]
pub struct Output {
    format: Format,
    /// How many lines may still be printed.
    left: Arc<Mutex<u64>>,
    stop: CancellationToken,
}

impl Output {
    /// The format that was asked for.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Prints one record: its text or its JSON. A text may have several lines and still counts as one.
    pub fn record(&self, record: &(impl Serialize + fmt::Display)) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if *left == 0 {
            return;
        }
        *left -= 1;
        // `println!` would panic when the reader has gone (`| head -1`), which is no error.
        if write(self.format, record).is_err() {
            *left = 0;
        }
        if *left == 0 {
            self.stop.cancel();
        }
    }
}

fn write(format: Format, record: &(impl Serialize + fmt::Display)) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match format {
        Format::Text => writeln!(stdout, "{record}")?,
        Format::Json => {
            serde_json::to_writer(&mut stdout, record)?;
            writeln!(stdout)?;
        }
    }
    stdout.flush()
}

/// A line about one object of one cluster, and what was done to it.
#[derive(Debug, Serialize)]
pub struct ObjectLine<'a> {
    /// The cluster's name.
    pub cluster: &'a str,
    /// The object's kind.
    pub kind: &'a str,
    /// Its namespace; empty if it has none.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// What was done.
    pub event: &'a str,
}

impl fmt::Display for ObjectLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cluster,
            kind,
            namespace,
            name,
            event,
        } = self;
        let slash = if namespace.is_empty() { "" } else { "/" };
        write!(
            f,
            "{event:<10} {}  {kind} {namespace}{slash}{name}",
            printable(cluster)
        )
    }
}

/// A text as one line without control characters: what comes from a cluster may hold anything.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

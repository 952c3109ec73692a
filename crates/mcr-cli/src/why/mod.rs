//! `mcr why`: why an object waits or fails in a running controller.

mod explain;
mod target;

use std::time::Duration;

use http::Uri;
use jiff::Timestamp;

use self::target::Target;
use crate::{
    clusters::{Controller, ServerFlags},
    colour::Colours,
    output, values,
};

/// The flags of `mcr why`.
#[derive(Debug, clap::Args)]
pub(crate) struct WhyArgs {
    /// The object: CLUSTER/NAMESPACE/NAME, or CLUSTER/NAME without a namespace; the unique end of a cluster's name is
    /// enough
    #[arg(value_name = "CLUSTER[/NAMESPACE]/NAME")]
    object: String,
    /// The address where the running controller serves /clusters
    #[arg(long, value_name = "URL")]
    server: Uri,
    #[command(flatten)]
    server_flags: ServerFlags,
    /// How long to wait for the answer
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = values::duration)]
    timeout: Duration,
    /// The output format
    #[arg(long, short = 'o', value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Format {
    /// Text
    #[default]
    Text,
    /// JSON
    Json,
}

/// Explains the state of an object. Returns whether no problem was found.
pub(crate) async fn run(args: WhyArgs) -> anyhow::Result<bool> {
    let controller = Controller::new(args.server, &args.server_flags, args.timeout)?;
    let report = controller.report().await?;
    let target = Target::find(&args.object, &report)?;
    let explanation = explain::explain(&report, &target, Timestamp::now());
    let text = match args.output {
        Format::Text => explanation.text(Colours::of_stdout()),
        Format::Json => output::json(&explanation)?,
    };
    output::print(&text)?;
    Ok(explanation.problems == 0)
}

//! Completions and manual pages, made from the description of the command line.

use std::path::Path;

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;

use crate::output::print;

pub(crate) fn completions(mut command: Command, shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "mcr", &mut script);
    Ok(print(&String::from_utf8_lossy(&script))?)
}

/// Prints the manual page of the command, or writes the pages of the command and all subcommands into a folder.
pub(crate) fn man(command: Command, folder: Option<&Path>) -> anyhow::Result<()> {
    if let Some(folder) = folder {
        return clap_mangen::generate_to(command, folder).with_context(|| {
            format!(
                "--dir {}: can't write the manual pages; the folder must exist",
                folder.display()
            )
        });
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(print(&String::from_utf8_lossy(&page))?)
}

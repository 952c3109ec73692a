//! Chooses the image that nodes are made from.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::engine::Engine;
use crate::node_image;
use crate::process::{self, Rules};

/// A node image has about one gigabyte.
const PULL: Rules = Rules::within(Duration::from_secs(600));

/// The image that the user has chosen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Wanted {
    /// kind's own image if it is available, otherwise `Own`.
    Auto,
    /// The image that `cargo xtask node-image` makes.
    Own,
    /// The image with this name.
    Named(String),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "own" => Ok(Self::Own),
            "" => Err("the name is empty: auto, own or an image's name".to_owned()),
            name => Ok(Self::Named(name.to_owned())),
        }
    }
}

/// The kind program, and the node image that it uses.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) kind: PathBuf,
    /// `None`: kind's default image.
    pub(super) image: Option<String>,
    /// Whether Pods run on the nodes. They don't if the image only contains a control plane.
    pub(super) pods: bool,
}

impl Nodes {
    /// Finds or makes kind and the image, and prints which they are.
    pub(super) fn choose(wanted: &Wanted, engine: &Engine) -> Result<Self> {
        let kind = node_image::kind()?;
        let image = match wanted {
            Wanted::Named(name) => Some(name.clone()),
            Wanted::Own => Some(node_image::image(engine, false)?),
            Wanted::Auto => match pull_default(engine)? {
                None => None,
                Some(why) if cfg!(target_os = "linux") => {
                    eprintln!("e2e: kind's own node image is not available ({why}): an image is made here");
                    Some(node_image::image(engine, false)?)
                }
                Some(why) => bail!(
                    "kind's own node image is not available ({why}), and an image can be made on Linux only: load {} into the engine, \
                     or name another with --node-image",
                    node_image::DEFAULT
                ),
            },
        };
        let pods = runs_pods(image.as_deref());
        eprintln!(
            "e2e: nodes are made from {}; {}",
            image.as_deref().unwrap_or(node_image::DEFAULT),
            if pods {
                "Pods run on them"
            } else {
                "it is a control plane alone, so no Pod runs on them"
            }
        );
        Ok(Self { kind, image, pods })
    }

    /// The name of the image, to detect clusters that were made from another image.
    pub(super) fn name(&self) -> &str {
        self.image.as_deref().unwrap_or(node_image::DEFAULT)
    }
}

/// Pulls kind's default image. Returns why it is not available, or `None` if it is.
fn pull_default(engine: &Engine) -> Result<Option<String>> {
    if node_image::has(engine, node_image::DEFAULT)? {
        return Ok(None);
    }
    eprintln!("e2e: pulling {}", node_image::DEFAULT);
    let pulled = process::run(
        engine.command().args(["pull", "--quiet", node_image::DEFAULT]),
        PULL,
    )?;
    if pulled.is_success() {
        return Ok(None);
    }
    let last = pulled.output.lines().rfind(|line| !line.trim().is_empty());
    Ok(Some(last.map_or_else(|| pulled.why(), str::to_owned)))
}

/// Images that are made by this program contain no kubelet.
fn runs_pods(image: Option<&str>) -> bool {
    image.is_none_or(|image| {
        // Podman adds its own host to names without a host.
        let name = image.strip_prefix("localhost/").unwrap_or(image);
        !name.starts_with(node_image::NAME)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_run_on_all_images_but_those_made_here() {
        assert!(runs_pods(None));
        assert!(runs_pods(Some("kindest/node:v1.36.1")));
        assert!(!runs_pods(Some("mcr-node:1.36.1-0123456789")));
        assert!(!runs_pods(Some("localhost/mcr-node:1.36.1-0123456789")));
    }

    #[test]
    fn an_image_is_chosen_by_a_word_or_its_name() {
        assert_eq!("auto".parse(), Ok(Wanted::Auto));
        assert_eq!("own".parse(), Ok(Wanted::Own));
        assert_eq!("a/b:c".parse(), Ok(Wanted::Named("a/b:c".to_owned())));
        assert!("".parse::<Wanted>().is_err());
    }
}

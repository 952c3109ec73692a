//! Reads files and folders. All functions block.

use std::{
    fs::{self, File, Metadata},
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use glob::Pattern;

use crate::{error::Fault, search::is_wanted};

/// The limit of mcr-core, which refuses larger kubeconfigs.
const MAX_LEN: u64 = 64 << 20;

/// File systems round time stamps, some to two seconds. So two changes within this time may have equal time stamps.
const COARSEST_CLOCK: Duration = Duration::from_secs(2);

/// The content of a file, or the reason why there is none.
pub(crate) enum Content {
    Missing,
    Bytes(Vec<u8>),
    Fault(Fault),
}

pub(crate) fn content(path: &Path) -> Content {
    match read(path) {
        Ok(bytes) => Content::Bytes(bytes),
        Err(Fault::Read(error)) if error.kind() == ErrorKind::NotFound => {
            dangling(path).map_or(Content::Missing, Content::Fault)
        }
        Err(fault) => Content::Fault(fault),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        return Err(Fault::IsFolder);
    }
    // Opening a pipe would block until another process writes to it.
    if !metadata.is_file() {
        return Err(Fault::NotRegular);
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_LEN + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_LEN {
        return Err(Fault::TooBig {
            len: metadata.len(),
            max: MAX_LEN,
        });
    }
    Ok(bytes)
}

/// The fault of a path that has no file: whether it is a link to a missing file.
fn dangling(path: &Path) -> Option<Fault> {
    let target = fs::read_link(path).ok()?;
    Some(Fault::Dangling { target })
}

/// The files of a folder whose names match the globs, sorted.
pub(crate) enum Listing {
    Missing,
    Files(Vec<PathBuf>),
    Fault(Fault),
}

pub(crate) fn list(dir: &Path, globs: &[Pattern]) -> Listing {
    match entries(dir, globs) {
        Ok(files) => Listing::Files(files),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            dangling(dir).map_or(Listing::Missing, Listing::Fault)
        }
        Err(error) if error.kind() == ErrorKind::NotADirectory && dir.is_file() => {
            Listing::Fault(Fault::IsFile)
        }
        Err(error) => Listing::Fault(error.into()),
    }
}

fn entries(dir: &Path, globs: &[Pattern]) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = dir.join(entry.file_name());
        // A folder is not a kubeconfig, even if its name matches a glob.
        if is_wanted(&entry.file_name(), globs) && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The metadata of a file. Equal stamps mean equal content, unless one of them is young.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    seen: Seen,
    /// Whether the file has changed so recently that another change may leave the metadata equal.
    young: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Missing,
    Dangling(PathBuf),
    Folder,
    File {
        len: u64,
        modified: Option<SystemTime>,
        identity: FileIdentity,
    },
    Fault(ErrorKind),
}

impl Stamp {
    pub(crate) fn of(path: &Path) -> Self {
        let seen = match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Seen::Folder,
            Ok(metadata) => {
                let identity = FileIdentity::of(&metadata);
                Seen::File {
                    len: metadata.len(),
                    modified: metadata.modified().ok(),
                    identity,
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::read_link(path).map_or(Seen::Missing, Seen::Dangling)
            }
            Err(error) => Seen::Fault(error.kind()),
        };
        let young = match &seen {
            Seen::File {
                modified, identity, ..
            } => identity.changed().max(*modified).is_none_or(is_young),
            _ => false,
        };
        Self { seen, young }
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.seen == Seen::Missing
    }

    /// Whether the content can't have changed since `before`.
    pub(crate) fn is_unchanged_since(&self, before: &Self) -> bool {
        self.seen == before.seen && !before.young
    }
}

fn is_young(changed: SystemTime) -> bool {
    // A file with a time in the future always counts as young.
    changed.elapsed().map_or(true, |age| age < COARSEST_CLOCK)
}

/// Distinguishes a file from another file that replaces it at the same path.
#[cfg(unix)]
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

#[cfg(unix)]
impl FileIdentity {
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// The time of the last change of the content or the metadata (ctime). Unlike the modification time, programs
    /// can't set it.
    fn changed(&self) -> Option<SystemTime> {
        let (seconds, nanos) = self.changed;
        let since = Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?);
        SystemTime::UNIX_EPOCH.checked_add(since)
    }
}

#[cfg(not(unix))]
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileIdentity;

#[cfg(not(unix))]
impl FileIdentity {
    fn of(_: &Metadata) -> Self {
        Self
    }

    fn changed(&self) -> Option<SystemTime> {
        None
    }
}

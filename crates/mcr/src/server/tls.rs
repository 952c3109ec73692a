//! TLS from files that may be replaced while the server runs.

use std::{
    io::Read,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use mcr_core::{
    Fingerprint,
    internal::tls::{ServerTls, ServerTlsProblem},
};
use parking_lot::RwLock;
use tokio::time::sleep;

use crate::error::ServeError;

/// The largest file.
const FILE: u64 = 1 << 20;

/// The files of a server's certificate and its key, in PEM, as a Secret of the type `kubernetes.io/tls` has them.
///
/// They are read again every ten seconds. New connections get the certificate that is there then; if the files can't be used,
/// they get the last one that could, and the log has the problem.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    check_every: Duration,
}

impl TlsFiles {
    /// The files of the certificate chain and of the private key.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            certificate: certificate.into(),
            key: key.into(),
            check_every: Duration::from_secs(10),
        }
    }

    /// Sets how often the files are read again.
    pub fn check_every(mut self, interval: Duration) -> Self {
        self.check_every = interval;
        self
    }
}

/// The certificate that new connections get.
pub(super) struct Certificate {
    files: Files,
    check_every: Duration,
    now: RwLock<Loaded>,
    trusts_old: AtomicBool,
}

/// The files, with that of the authorities of client certificates.
#[derive(Clone)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    authorities: Option<PathBuf>,
}

/// What the files hold.
#[derive(Hash)]
struct Content {
    chain: Vec<u8>,
    key: Vec<u8>,
    roots: Option<Vec<u8>>,
}

/// What was loaded, and the fingerprints of the files' content and of that of the authorities.
struct Loaded {
    content: Fingerprint,
    roots: Option<Fingerprint>,
    tls: Arc<ServerTls>,
}

/// A file that can't be used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Problem {
    path: PathBuf,
    problem: String,
}

impl Certificate {
    /// Reads the files.
    pub(super) fn load(files: TlsFiles, authorities: Option<PathBuf>) -> Result<Self, ServeError> {
        let check_every = files.check_every;
        let files = Files {
            certificate: files.certificate,
            key: files.key,
            authorities,
        };
        match files.read().and_then(|content| files.build(&content)) {
            Ok(loaded) => Ok(Self {
                files,
                check_every,
                now: RwLock::new(loaded),
                trusts_old: AtomicBool::new(false),
            }),
            Err(Problem { path, problem }) => Err(ServeError::File { path, problem }),
        }
    }

    pub(super) fn now(&self) -> Arc<ServerTls> {
        self.now.read().tls.clone()
    }

    /// Whether the authorities in use are not those of the file, which can't be used or could not be taken over. One that was taken out of
    /// the file must not be trusted for as long as that lasts.
    pub(super) fn trusts_old_authorities(&self) -> bool {
        self.trusts_old.load(Ordering::Relaxed)
    }

    /// Reads the files again and again, until the future is dropped.
    pub(super) async fn follow(&self) {
        let mut reported: Option<Problem> = None;
        loop {
            sleep(self.check_every).await;
            let files = self.files.clone();
            let (known, roots) = {
                let now = self.now.read();
                (now.content, now.roots)
            };
            let read = tokio::task::spawn_blocking(move || {
                let changed = files.changed(known);
                let trusts_old = changed.is_err() && files.roots() != roots;
                (changed, trusts_old)
            });
            // Reading does not panic.
            let Ok((changed, trusts_old)) = read.await else {
                continue;
            };
            let problem = match changed {
                Ok(Some(loaded)) => {
                    *self.now.write() = loaded;
                    tracing::info!("the certificate of this server was replaced");
                    None
                }
                Ok(None) => None,
                Err(problem) => Some(problem),
            };
            if self.trusts_old.swap(trusts_old, Ordering::Relaxed) != trusts_old
                && let Some(path) = &self.files.authorities
            {
                if trusts_old {
                    tracing::warn!(path = %path.display(), "the authorities of client certificates can't be replaced, so all requests that need one are refused");
                } else {
                    tracing::info!(path = %path.display(), "client certificates are accepted again");
                }
            }
            if let Some(Problem { path, problem: why }) = &problem
                && reported != problem
            {
                tracing::warn!(
                    path = %path.display(),
                    problem = why,
                    "the certificate of this server can't be replaced, so new connections get the last one"
                );
            }
            reported = problem;
        }
    }
}

impl Files {
    fn read(&self) -> Result<Content, Problem> {
        Ok(Content {
            chain: read(&self.certificate)?,
            key: read(&self.key)?,
            roots: self.authorities.as_deref().map(read).transpose()?,
        })
    }

    fn build(&self, content: &Content) -> Result<Loaded, Problem> {
        let tls = ServerTls::new(&content.chain, &content.key, content.roots.as_deref());
        let (path, problem) = match tls {
            Ok(tls) => {
                return Ok(Loaded {
                    content: Fingerprint::of(content),
                    roots: content.roots.as_ref().map(Fingerprint::of),
                    tls: Arc::new(tls),
                });
            }
            Err(ServerTlsProblem::Certificate(problem)) => (Some(&self.certificate), problem.to_owned()),
            Err(ServerTlsProblem::Key(problem)) => (Some(&self.key), problem.to_owned()),
            Err(ServerTlsProblem::ClientAuthorities(problem)) => {
                (self.authorities.as_ref(), problem.to_owned())
            }
            Err(ServerTlsProblem::NoCrypto(missing)) => {
                (Some(&self.certificate), format!("can't be served: {missing}"))
            }
        };
        Err(Problem {
            path: path.cloned().unwrap_or_default(),
            problem,
        })
    }

    /// The fingerprint of the authorities, if they can be read.
    fn roots(&self) -> Option<Fingerprint> {
        let content = read(self.authorities.as_deref()?).ok()?;
        Some(Fingerprint::of(&content))
    }

    /// Builds from what the files hold now. `None` if that is still the known content.
    fn changed(&self, known: Fingerprint) -> Result<Option<Loaded>, Problem> {
        let content = self.read()?;
        (Fingerprint::of(&content) != known)
            .then(|| self.build(&content))
            .transpose()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    let problem = |problem: String| Problem {
        path: path.to_owned(),
        problem,
    };
    let mut content = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(FILE + 1).read_to_end(&mut content));
    match read {
        Ok(read) if read as u64 > FILE => Err(problem("is larger than 1 MiB".to_owned())),
        Ok(_) => Ok(content),
        Err(error) => Err(problem(format!("can't be read: {error}"))),
    }
}

//! The promises of docs/architecture.md that need many clusters and no sockets.

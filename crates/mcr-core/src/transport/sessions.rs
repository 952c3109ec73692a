//! The TLS sessions that can be resumed.
//!
//! rustls has a store of its own, which makes room for eight tickets of a server, and for several servers, when there is
//! one of each: 2 KiB for a cluster.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustls::{
    NamedGroup,
    client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue},
};
use rustls_pki_types::ServerName;

/// For so many servers. A cluster has one, but those of one authority that bear tokens share a store.
const SERVERS: usize = 256;

/// A ticket is good for one connection, and each watch has a connection. As many as rustls keeps.
const TICKETS: usize = 8;

/// See the module. The servers that came first come first.
#[derive(Default)]
pub(super) struct Sessions(Mutex<Vec<Server>>);

struct Server {
    name: ServerName<'static>,
    group: Option<NamedGroup>,
    tls12: Option<Box<Tls12ClientSessionValue>>,
    /// The oldest first.
    tickets: Vec<Tls13ClientSessionValue>,
}

impl Sessions {
    fn servers(&self) -> MutexGuard<'_, Vec<Server>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, name: &ServerName<'_>, with: impl FnOnce(&mut Server) -> Option<T>) -> Option<T> {
        with(self.servers().iter_mut().find(|server| server.name == *name)?)
    }

    fn change(&self, name: ServerName<'static>, change: impl FnOnce(&mut Server)) {
        let mut servers = self.servers();
        if let Some(server) = servers.iter_mut().find(|server| server.name == name) {
            change(server);
            return;
        }
        let mut server = Server {
            name,
            group: None,
            tls12: None,
            tickets: Vec::new(),
        };
        change(&mut server);
        if servers.len() >= SERVERS {
            servers.remove(0);
        }
        if servers.is_empty() {
            servers.reserve_exact(1);
        }
        servers.push(server);
    }
}

// Tickets are as good as keys.
impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        self.change(server_name, |server| server.group = Some(group));
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        self.with(server_name, |server| server.group)
    }

    fn set_tls12_session(&self, server_name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.change(server_name, |server| server.tls12 = Some(Box::new(value)));
    }

    fn tls12_session(&self, server_name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.with(server_name, |server| server.tls12.as_deref().cloned())
    }

    fn remove_tls12_session(&self, server_name: &ServerName<'static>) {
        self.with(server_name, |server| server.tls12.take());
    }

    fn insert_tls13_ticket(&self, server_name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.change(server_name, |server| {
            if server.tickets.len() >= TICKETS {
                server.tickets.remove(0);
            }
            if server.tickets.is_empty() {
                server.tickets.reserve_exact(1);
            }
            server.tickets.push(value);
        });
    }

    fn take_tls13_ticket(&self, server_name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.with(server_name, |server| server.tickets.pop())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rcgen::generate_simple_self_signed;
    use rustls::{
        ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConfig, ServerConnection,
        client::Resumption, version,
    };
    use rustls_pki_types::PrivateKeyDer;

    use super::*;
    use crate::access::pem;

    /// Servers of these names, and those who connect to them.
    fn peers(names: &[String], tickets: usize) -> (Arc<ServerConfig>, Arc<Sessions>, Arc<ClientConfig>) {
        let made = generate_simple_self_signed(names).unwrap();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let chain = vec![made.cert.der().clone()];
        let mut roots = RootCertStore::empty();
        roots.add(chain[0].clone()).unwrap();
        let mut server = ServerConfig::builder_with_provider(pem::provider().clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        server.send_tls13_tickets = tickets;
        // It remembers nothing itself, so that it forgets nothing.
        server.ticketer = rustls::crypto::ring::Ticketer::new().unwrap();
        let mut client = ClientConfig::builder_with_provider(pem::provider().clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let sessions = Arc::new(Sessions::default());
        client.resumption = Resumption::store(sessions.clone());
        (server.into(), sessions, client.into())
    }

    fn connect(server: &Arc<ServerConfig>, client: &Arc<ClientConfig>, name: &str) -> HandshakeKind {
        let mut server = ServerConnection::new(server.clone()).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = ClientConnection::new(client.clone(), name).unwrap();
        let mut wire = Vec::new();
        // Twice for the handshake, and once more for the tickets.
        for _ in 0..3 {
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut &*std::mem::take(&mut wire)).unwrap();
            server.process_new_packets().unwrap();
            while server.wants_write() {
                server.write_tls(&mut wire).unwrap();
            }
            let mut received = &*wire;
            while !received.is_empty() {
                client.read_tls(&mut received).unwrap();
                client.process_new_packets().unwrap();
            }
            wire.clear();
        }
        client.handshake_kind().unwrap()
    }

    #[test]
    fn each_session_is_resumed_by_the_next_connection() {
        let (server, _, client) = peers(&["a".to_owned()], 1);
        assert_eq!(connect(&server, &client, "a"), HandshakeKind::Full);
        for _ in 0..3 {
            assert_eq!(connect(&server, &client, "a"), HandshakeKind::Resumed);
        }
    }

    #[test]
    fn sessions_of_older_servers_are_resumed_as_well() {
        let (server, _, client) = peers(&["a".to_owned()], 1);
        let mut older = ClientConfig::builder_with_provider(pem::provider().clone())
            .with_protocol_versions(&[&version::TLS12])
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        older.resumption = client.resumption.clone();
        older
            .dangerous()
            .set_certificate_verifier(Arc::new(super::super::tls::AnyServer));
        let mut server = (*server).clone();
        server.session_storage = rustls::server::ServerSessionMemoryCache::new(8);
        let (server, older) = (Arc::new(server), Arc::new(older));
        assert_eq!(connect(&server, &older, "a"), HandshakeKind::Full);
        assert_eq!(connect(&server, &older, "a"), HandshakeKind::Resumed);
    }

    #[test]
    fn no_more_is_kept_than_can_be_of_use() {
        let names: Vec<String> = (0..SERVERS + 8)
            .map(|number| format!("server-{number}"))
            .collect();
        let (server, sessions, client) = peers(&names, 2 * TICKETS);
        for name in &names {
            assert_eq!(connect(&server, &client, name), HandshakeKind::Full, "{name}");
        }
        assert_eq!(sessions.servers().len(), SERVERS);
        assert!(
            sessions
                .servers()
                .iter()
                .all(|server| server.tickets.len() == TICKETS)
        );
        for name in &names[8..] {
            assert_eq!(connect(&server, &client, name), HandshakeKind::Resumed, "{name}");
        }
        assert_eq!(connect(&server, &client, &names[0]), HandshakeKind::Full);
    }

    #[test]
    fn tickets_are_not_shown() {
        let (server, sessions, client) = peers(&["a".to_owned()], 1);
        connect(&server, &client, "a");
        assert_eq!(format!("{sessions:?}"), "Sessions { .. }");
    }
}

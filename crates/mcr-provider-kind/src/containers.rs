//! Parses the output of `ps` and `container inspect` of Docker, Podman and nerdctl.

use std::cmp::Ordering;

use serde_json::Value;

/// The label that kind gives its containers. Its value is the name of the cluster.
pub(crate) const CLUSTER: &str = "io.x-k8s.kind.cluster";
/// The label with the role of a container.
const ROLE: &str = "io.x-k8s.kind.role";
/// The label with the address at which Docker Desktop exposes the port of the API server. As in kind, it takes
/// precedence over the port mapping.
const DESKTOP: &str = "desktop.docker.io/ports/6443/tcp";
/// The API server's port in the container.
const PORT: &str = "6443/tcp";

/// A container of a kind cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) cluster: String,
    pub(crate) role: Role,
    pub(crate) state: State,
    /// The address of port 6443 as this process reaches it: `host:port`.
    pub(crate) endpoint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    ControlPlane,
    LoadBalancer,
    /// Workers, and roles that future versions of kind may add.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Paused,
    Restarting,
    /// Created, but never started.
    Created,
    Stopped,
}

/// The arguments that list the IDs of all containers of kind clusters, including stopped ones.
pub(crate) const LIST: [&str; 6] = [
    "ps",
    "-a",
    "-q",
    "--no-trunc",
    "--filter",
    "label=io.x-k8s.kind.cluster",
];

/// The IDs in the output of `ps -q`.
pub(crate) fn ids(stdout: &[u8]) -> Result<Vec<String>, &'static str> {
    let text = std::str::from_utf8(stdout).map_err(|_| "it is not text")?;
    let mut ids = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        // The ID becomes an argument of the program, so it must not look like an option.
        if !line.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err("it should be IDs of containers, one in each line");
        }
        ids.push(line.to_owned());
    }
    Ok(ids)
}

/// The nodes in the output of `container inspect`. Leaves out containers that are not nodes of kind.
pub(crate) fn nodes(stdout: &[u8]) -> Result<Vec<Node>, String> {
    // Podman prints nothing if none of the containers exists.
    if stdout.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let values: Vec<Value> = serde_json::from_slice(stdout).map_err(|error| {
        format!(
            "it should be a list of containers in JSON ({:?})",
            error.classify()
        )
    })?;
    Ok(values.iter().filter_map(node).collect())
}

// Reads each field separately, without a type for the whole. So if a future engine writes a field of one container in
// another form, the other clusters are still found.
fn node(value: &Value) -> Option<Node> {
    let id = value["Id"].as_str().filter(|id| !id.is_empty())?;
    let labels = &value["Config"]["Labels"];
    let cluster = labels[CLUSTER].as_str()?;
    // Docker prints a slash before the name. The other engines don't.
    let name = value["Name"].as_str().unwrap_or(id).trim_start_matches('/');
    Some(Node {
        id: id.to_owned(),
        name: name.to_owned(),
        cluster: cluster.to_owned(),
        role: match labels[ROLE].as_str() {
            Some("control-plane") => Role::ControlPlane,
            Some("external-load-balancer") => Role::LoadBalancer,
            _ => Role::Other,
        },
        state: state(&value["State"]),
        endpoint: endpoint(value),
    })
}

fn state(state: &Value) -> State {
    let is = |field: &str| state[field].as_bool().unwrap_or(false);
    match state["Status"].as_str() {
        _ if is("Paused") => State::Paused,
        _ if is("Restarting") => State::Restarting,
        Some("paused") => State::Paused,
        Some("restarting") => State::Restarting,
        // Podman has other states between `created` and `running`.
        Some("created" | "configured" | "initialized") => State::Created,
        Some("running") => State::Running,
        _ if is("Running") => State::Running,
        _ => State::Stopped,
    }
}

fn endpoint(value: &Value) -> Option<String> {
    if let Some(desktop) = value["Config"]["Labels"][DESKTOP]
        .as_str()
        .filter(|label| !label.is_empty())
    {
        // An address without a host refers to this machine.
        return Some(match desktop.strip_prefix(':') {
            Some(port) => format!("127.0.0.1:{port}"),
            None => desktop.to_owned(),
        });
    }
    // The current mapping. A stopped container has none, so its configured mapping is used, which it gets again when
    // it starts.
    let now = binding(&value["NetworkSettings"]["Ports"][PORT]);
    now.or_else(|| binding(&value["HostConfig"]["PortBindings"][PORT]))
}

fn binding(bindings: &Value) -> Option<String> {
    bindings.as_array()?.iter().find_map(|binding| {
        let port: u16 = binding["HostPort"].as_str()?.parse().ok()?;
        // Port 0: the engine has not chosen a free port yet.
        if port == 0 {
            return None;
        }
        let host = binding["HostIp"].as_str().unwrap_or_default();
        Some(match host {
            "" => format!("127.0.0.1:{port}"),
            v6 if v6.contains(':') => format!("[{v6}]:{port}"),
            host => format!("{host}:{port}"),
        })
    })
}

/// Sorts `control-plane` before `control-plane2` before `control-plane10`. kind has created the first one first.
pub(crate) fn by_name(a: &Node, b: &Node) -> Ordering {
    (a.name.len(), &a.name, &a.id).cmp(&(b.name.len(), &b.name, &b.id))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn recorded(name: &str) -> Vec<u8> {
        std::fs::read(format!("{}/tests/recorded/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    fn one(name: &str) -> Node {
        let nodes = nodes(&recorded(name)).unwrap();
        assert_eq!(nodes.len(), 1, "{nodes:?}");
        nodes.into_iter().next().unwrap()
    }

    #[test]
    fn what_docker_printed_is_read() {
        let running = one("docker-20.10-inspect.json");
        assert_eq!(
            running,
            Node {
                id: "f7ff087c9406dded4acd0666f85e714937e6a7c060cdad8693bf394df9bcf667".into(),
                name: "a-control-plane".into(),
                cluster: "a".into(),
                role: Role::ControlPlane,
                state: State::Running,
                endpoint: Some("127.0.0.1:43981".into()),
            }
        );
        // A stopped container has no port. When it starts it gets the configured one.
        assert_eq!(
            one("docker-20.10-inspect-stopped.json"),
            Node {
                state: State::Stopped,
                ..running
            }
        );
    }

    #[test]
    fn what_podman_and_nerdctl_print_is_read() {
        for (file, name, state, endpoint) in [
            (
                "podman-4.3-inspect-created.json",
                "d",
                State::Created,
                "127.0.0.1:45678",
            ),
            ("nerdctl-2-inspect.json", "n", State::Running, "127.0.0.1:36443"),
        ] {
            let node = one(file);
            assert_eq!(
                (node.name, &*node.cluster),
                (format!("{name}-control-plane"), name)
            );
            assert_eq!((node.role, node.state), (Role::ControlPlane, state));
            assert_eq!(node.endpoint.as_deref(), Some(endpoint));
        }
    }

    #[test]
    fn endpoints_are_reported_as_kind_reports_them() {
        let of = |labels: Value, now: Value, asked: Value| {
            endpoint(&json!({
                "Config": {"Labels": labels},
                "NetworkSettings": {"Ports": now},
                "HostConfig": {"PortBindings": asked},
            }))
        };
        let at = |host: &str, port: &str| json!({"6443/tcp": [{"HostIp": host, "HostPort": port}]});
        let none = || json!({});
        let desktop = |value: &str| json!({DESKTOP: value});
        for (labels, now, asked, expected) in [
            (
                desktop("10.0.1.7:6443"),
                at("127.0.0.1", "1"),
                none(),
                Some("10.0.1.7:6443"),
            ),
            (desktop(":7000"), none(), none(), Some("127.0.0.1:7000")),
            (desktop(""), at("127.0.0.1", "1"), none(), Some("127.0.0.1:1")),
            (none(), at("", "5"), none(), Some("127.0.0.1:5")),
            (none(), at("0.0.0.0", "5"), at("", "6"), Some("0.0.0.0:5")),
            (none(), at("::1", "5"), none(), Some("[::1]:5")),
            (none(), Value::Null, at("127.0.0.1", "6"), Some("127.0.0.1:6")),
            (none(), json!({"6443/tcp": null}), at("127.0.0.1", "0"), None),
            (none(), at("127.0.0.1", "many"), none(), None),
            (Value::Null, Value::Null, Value::Null, None),
        ] {
            assert_eq!(
                of(labels.clone(), now.clone(), asked.clone()).as_deref(),
                expected,
                "{labels} {now} {asked}"
            );
        }
    }

    #[test]
    fn strangers_and_the_malformed_hide_nobody() {
        let text = json!([
            {"Id": "1", "Config": {"Labels": {"other": "x"}}},
            {"Id": "2", "Config": {"Labels": null}},
            "not a container",
            {"Config": {"Labels": {CLUSTER: "without an id"}}},
            {"Id": "3", "Name": 7, "Config": {"Labels": {CLUSTER: "odd", ROLE: {}}}, "State": [], "HostConfig": 1},
            {"Id": "4", "Name": "/ok-control-plane", "Config": {"Labels": {CLUSTER: "ok", ROLE: "control-plane"}},
             "State": {"Status": "running"}},
        ]);
        let nodes = nodes(text.to_string().as_bytes()).unwrap();
        let reported: Vec<_> = nodes
            .iter()
            .map(|node| (node.cluster.as_str(), node.state, node.role))
            .collect();
        assert_eq!(
            reported,
            [
                ("odd", State::Stopped, Role::Other),
                ("ok", State::Running, Role::ControlPlane)
            ]
        );
    }

    #[test]
    fn garbage_is_an_error_and_never_quoted() {
        for garbage in ["{}", "[", "<html>secret</html>", "[]]", "null"] {
            let error = nodes(garbage.as_bytes()).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(nodes(b"\n").unwrap().is_empty());
        for garbage in ["--all", "a b", "Error: secret", "\u{1f980}"] {
            assert!(!ids(garbage.as_bytes()).unwrap_err().contains("secret"));
        }
        assert!(ids(&[0xff]).is_err());
        assert_eq!(ids(b"ab12\r\n\n cd34 \n").unwrap(), ["ab12", "cd34"]);
    }

    #[test]
    fn the_first_control_plane_is_the_one_kind_made_first() {
        let named = |name: &str| Node {
            name: name.into(),
            ..one("docker-20.10-inspect.json")
        };
        let mut nodes = ["a-control-plane10", "a-control-plane2", "a-control-plane"].map(named);
        nodes.sort_by(by_name);
        assert_eq!(
            nodes.map(|node| node.name),
            ["a-control-plane", "a-control-plane2", "a-control-plane10"]
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (ids(&bytes), nodes(&bytes));
        }
    }
}
